"""Slurm's accounting."""
