"""Publishes what one training node knows about itself as Prometheus metrics."""

__version__ = "0.1.0"
