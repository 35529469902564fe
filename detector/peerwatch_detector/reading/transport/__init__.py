"""How a range travels: connections, requests, responses."""
