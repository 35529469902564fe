"""Compares how the nodes of a job are set up: who differs from most, and what changed meanwhile."""
