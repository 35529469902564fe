"""Method ``zscore``: the outlier rule of Aegis (NSDI 2025)."""
