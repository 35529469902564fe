"""Checks by scope, one file each; importing a module registers it.

A module is imported on any node, before it is known whether the check runs there: what is not in
the base install (numpy, torch) is imported by the check when it runs.
"""
