"""What is known of a job's failure: observations in order of time, live or recorded."""
