"""Where logs are found, one kind of place per file."""
