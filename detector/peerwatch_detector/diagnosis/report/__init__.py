"""``peerwatch-detector diagnose``: what a job itself says now, for a terminal."""
