"""The web UI and the HTTP endpoints."""
