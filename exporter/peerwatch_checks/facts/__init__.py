"""What a node has: counted, not tested."""
