"""What Prometheus knows of nodes and jobs."""
