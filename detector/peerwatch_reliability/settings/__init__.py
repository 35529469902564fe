"""The settings of ``peerwatch-reliability``."""
