"""What was advised before, and what became of it: rows in a file that are only ever added."""
