"""Records the demo's faults as cases for backtests, and what the live detector said meanwhile."""
