"""Simulated training jobs with known faults, for evaluation, default models and the demo.

No public data set holds GPU, fabric and host counters of a job at one second with the faulty node
labelled, so faults are simulated. ``docs/evaluation.md`` argues what is realistic about it and what
is not. Everything is a function of a seed.
"""

from peerwatch_demo.simulator.case import SimulatedCase, simulate, simulate_seed, write_case
from peerwatch_demo.simulator.family import FAMILIES, FAMILY_NAMES, Family
from peerwatch_demo.simulator.fine import FINE, FineFamily, coarser, simulate_fine

__all__ = [
    "FAMILIES",
    "FAMILY_NAMES",
    "FINE",
    "Family",
    "FineFamily",
    "SimulatedCase",
    "coarser",
    "simulate",
    "simulate_fine",
    "simulate_seed",
    "write_case",
]
