"""What is known of a job's traffic: against its own usual level and rhythm, and node by node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Of a job or a node: as usual, next to nothing, much less than usual, without its period.
TrafficState = Literal["usual", "stopped", "fallen", "irregular"]


@dataclass(frozen=True, slots=True)
class NodeTraffic:
    """A node whose traffic changed while that of its peers did not.

    Parameters
    ----------
    node
        Its name.
    state
        ``fallen`` or ``irregular``.
    ratio
        Its present share of the job's traffic, as a share of its usual one.
    since
        Unix time at which it began.
    """

    node: str
    state: TrafficState
    ratio: float
    since: float


@dataclass(frozen=True, slots=True)
class JobTraffic:
    """A job's traffic at one moment.

    Parameters
    ----------
    metric
        The detection metric that it is known from.
    usual
        What a node of the job usually sends and receives, in bytes per second.
    ratio
        The present level as a share of that; a checkpoint lowers it for as long as it takes.
    period_seconds
        From one repetition to the next; None = nothing repeats, or too fast to be seen.
    shortest_seconds
        A shorter period cannot be seen: samples are too rare, or rates over too long a time.
    state, since
        What is wrong with it, and from when (Unix time); 0 while it is as usual.
    nodes
        Those whose traffic changed alone.
    """

    metric: str
    usual: float
    ratio: float
    period_seconds: float | None
    shortest_seconds: float
    state: TrafficState = "usual"
    since: float = 0.0
    nodes: tuple[NodeTraffic, ...] = ()
