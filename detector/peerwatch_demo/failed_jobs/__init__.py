"""Real jobs that are made to fail, for their logs: the corpus of the retry adviser has them."""
