"""Models of whether a failed job is worth another attempt, as they run: NumPy, without torch."""
