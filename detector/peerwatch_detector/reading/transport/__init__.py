"""How a range travels: connections, requests, answers."""
