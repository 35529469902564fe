"""What is known of other nodes, asked of Prometheus."""
