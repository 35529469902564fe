"""What the logs of one attempt say: errors, what they follow from, how far it came."""
