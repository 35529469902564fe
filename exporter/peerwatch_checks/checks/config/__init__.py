"""Checks of a node's configuration: they read, and put no load on anything."""
