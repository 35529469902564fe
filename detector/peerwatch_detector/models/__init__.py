"""Models that embed windows; one per metric."""
