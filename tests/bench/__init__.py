"""What Peerwatch costs, measured on the real programs; `make bench` runs it."""
