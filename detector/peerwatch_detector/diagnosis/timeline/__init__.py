"""The spans of a job's ranks on one time axis, for Perfetto and other viewers of Chrome traces."""
