"""What a job fails of, as the web UI shows it: the answer, and what was observed in its order."""
