"""Checks of two nodes with one another."""
