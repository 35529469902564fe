"""Collectors, one subsystem each; importing a module registers it."""
