"""The running program: makes the books again and again, and publishes them."""
