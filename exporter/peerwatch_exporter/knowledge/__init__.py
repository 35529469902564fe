"""What is known about error codes, as data: no reading, no counting, no state."""
