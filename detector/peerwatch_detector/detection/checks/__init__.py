"""Signs that need no model, one file each."""
