"""Everything that needs an NVIDIA GPU, tried on one; `make gpu` runs it and writes docs/gpu.md."""
