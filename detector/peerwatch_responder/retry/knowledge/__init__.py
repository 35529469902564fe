"""What is known beforehand: advice for each signature, and for each way in which a job can exit."""
