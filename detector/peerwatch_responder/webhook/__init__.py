"""What Alertmanager posts."""
