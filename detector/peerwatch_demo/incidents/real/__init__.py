"""Real jobs with real faults, recorded with the lines that they write."""
