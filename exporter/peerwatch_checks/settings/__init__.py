"""The settings of ``peerwatch-check``."""
