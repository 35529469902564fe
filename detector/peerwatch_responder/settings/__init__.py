"""The settings of ``peerwatch-responder``."""
