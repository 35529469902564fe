"""One training job, its findings and its nodes."""
