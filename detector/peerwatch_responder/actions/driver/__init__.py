"""Training drivers that take orders: a command or an address."""
