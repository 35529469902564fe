"""Checks of one node by itself."""
