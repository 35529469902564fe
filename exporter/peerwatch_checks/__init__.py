"""Tests whether a node is fit to train, by giving it something to do."""

__version__ = "0.1.0"
