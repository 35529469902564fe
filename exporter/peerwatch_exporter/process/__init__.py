"""The process: command line, assembly, logging, systemd, memory."""
