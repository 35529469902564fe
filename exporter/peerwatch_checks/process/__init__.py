"""The command line, and what it puts together."""
