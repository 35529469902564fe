"""HTTP for every program: requests, responses, TLS, logins; the server itself is server.py."""
