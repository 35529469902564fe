"""Method ``minder``: the algorithm of the paper (NSDI 2025)."""
