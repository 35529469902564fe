"""What reading and detection cost on this machine."""
