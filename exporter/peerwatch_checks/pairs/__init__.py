"""Tests between pairs of nodes: who meets whom, and whom the results name."""
