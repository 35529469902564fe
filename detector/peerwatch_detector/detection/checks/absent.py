"""A node that vanishes is a finding, not missing data.

Only a node that vanishes alone: when most of a job's nodes become absent together, the job ended
or the monitoring broke, and nobody is named.
"""

from __future__ import annotations

# At least this share of the job's nodes must still be there for silence to mean anything.
SMALLEST_PRESENT_SHARE = 0.5


def absent_seconds(
    absent_since: dict[str, float], nodes: int, now: float, after_seconds: float
) -> dict[str, float]:
    """Return for how long each absent node has been silent.

    Parameters
    ----------
    silent_since
        Unix time at which each silent node was last seen.
    nodes
        Number of nodes of the job, silent ones included.
    now
        Unix time.
    after_seconds
        Silence shorter than this is a missed scrape.

    Returns
    -------
    dict[str, float]
        Seconds by node; empty if too few nodes are left to compare with.
    """
    if nodes - len(absent_since) < SMALLEST_PRESENT_SHARE * nodes:
        return {}
    silence = {node: now - since for node, since in absent_since.items()}
    return {node: seconds for node, seconds in silence.items() if seconds >= after_seconds}
