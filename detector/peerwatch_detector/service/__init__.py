"""The running detector: discovery, schedule, cycles, published metrics."""
