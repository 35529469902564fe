"""The running responder: what is received, decided, written down and done."""
