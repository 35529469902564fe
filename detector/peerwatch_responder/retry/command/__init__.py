"""``peerwatch-responder advise``."""
