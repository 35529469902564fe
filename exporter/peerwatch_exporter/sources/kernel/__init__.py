"""The kernel log."""
