"""Running checks: one after the other, if they may, each in a process that is ended in time."""
