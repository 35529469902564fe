"""What the responder did, and what it would do."""
