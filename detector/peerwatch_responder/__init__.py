"""Acts on what was found: drains a node, restarts its job, or says why it does not."""

__version__ = "0.1.0"
