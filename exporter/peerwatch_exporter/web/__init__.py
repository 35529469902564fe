"""How the pages reach a client: requests, answers, TLS, logins; the server itself is server.py."""
