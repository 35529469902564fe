"""What a job would lose to nobody: its recorded steps replayed as if no operation were slow."""
