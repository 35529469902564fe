"""One node, in all jobs that it works for."""
