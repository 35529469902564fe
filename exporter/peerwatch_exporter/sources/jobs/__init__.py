"""Which training jobs run here, and their ranks."""
