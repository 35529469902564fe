"""Which nodes fail again and again, and what that is worth to know."""
