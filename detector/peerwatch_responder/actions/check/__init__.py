"""Checks a node before something is done to it, or before it is put back."""
