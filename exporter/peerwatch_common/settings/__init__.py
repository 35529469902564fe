"""Settings: the files that people write, and every mistake in them."""
