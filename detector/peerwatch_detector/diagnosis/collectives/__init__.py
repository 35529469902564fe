"""Which rank or link holds up the job's collectives, or slows them."""
