"""What advice on retries saves: failed jobs with Philly's mix of reasons, by policy."""
