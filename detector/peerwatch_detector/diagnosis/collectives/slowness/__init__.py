"""Who makes a job's collectives late: arrivals, transfers, losses."""
