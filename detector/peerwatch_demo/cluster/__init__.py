"""A training job on nodes of this machine, the faults done to it, its detector."""
