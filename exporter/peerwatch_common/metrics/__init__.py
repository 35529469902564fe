"""Metrics: their specification, families of samples, and the exposition that a scrape gets."""
