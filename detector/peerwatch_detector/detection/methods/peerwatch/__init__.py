"""Method ``peerwatch``: peers, own past, and what the job does."""
