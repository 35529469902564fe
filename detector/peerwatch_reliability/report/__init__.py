"""The books of one window of time, and how they are shown."""
