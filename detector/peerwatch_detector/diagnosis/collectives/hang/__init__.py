"""Who keeps a job's collectives waiting: the waits-for graph and its roots."""
