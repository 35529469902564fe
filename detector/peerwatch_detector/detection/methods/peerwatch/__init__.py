"""Method ``peerwatch`` (default): peers, baselines, progress and evidence, step by step."""
