"""What was done: written down before it is done, and never forgotten."""
