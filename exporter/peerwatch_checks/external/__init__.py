"""Programs of others that checks run, where they are there, and how their answers are read."""
