"""Compares every node of a training job with its peers and names the one that differs."""

__version__ = "0.1.0"
