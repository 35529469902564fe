"""Method ``peerwatch``: peers, own past, and what the job does.

Where a constant names no source, its value was chosen on the development seeds of
docs/evaluation.md, and then measured on others.
"""
