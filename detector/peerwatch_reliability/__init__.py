"""Keeps the books of a cluster: ETTR, MTTF, goodput, and the nodes that fail again and again."""

__version__ = "0.1.0"
