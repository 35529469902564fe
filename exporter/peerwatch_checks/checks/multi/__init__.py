"""Checks of several nodes with one another."""
