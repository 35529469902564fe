"""The exporter's endpoints and its landing page."""
