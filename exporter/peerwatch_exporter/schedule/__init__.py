"""When collectors run, and what happens to one that does not return."""
