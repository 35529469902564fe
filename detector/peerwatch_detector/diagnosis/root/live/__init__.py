"""What is known of a running job, asked of Prometheus."""
