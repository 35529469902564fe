"""Where the logs of a failed job are, how much of each is read, and what its scheduler says."""
