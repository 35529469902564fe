"""What a scrape gets: the exposition of the newest snapshot."""
