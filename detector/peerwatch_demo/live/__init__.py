"""The live evaluation: faults done to real training jobs, and what the detector said of them."""
