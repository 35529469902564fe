"""Spans: what the ranks of the node wrote about where their steps go."""
