"""Slurm, told by its own commands; its states are read as JSON."""
