"""Five addresses of a demo that stays up, and what there is to see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

# As many as the demo's fleet has (fleet/plan.py).
_MOST_JOBS = 3


@dataclass(frozen=True, slots=True)
class Servers:
    """Base URLs of what a demo runs."""

    detector: str
    prometheus: str
    alertmanager: str


def tour(servers: Servers, job_id: str, node: str) -> str:
    """Return the addresses worth opening, in the order in which a person looks, with what is there.

    Parameters
    ----------
    servers
        What runs.
    job_id, node
        The training job with the fault, and the node that has it.
    """
    detector, prometheus = servers.detector.rstrip("/"), servers.prometheus.rstrip("/")
    score = quote(f'topk(5, peerwatch_fault_score{{job_id="{job_id}"}})')
    stops = (
        (f"{detector}/", "all training jobs, what needs somebody first; what each does now"),
        (
            f"{detector}/jobs/{quote(job_id)}",
            f"the job: why {node} is flagged, and since when; the node against its peers",
        ),
        (f"{detector}/nodes/{quote(node)}", f"{node}: every metric in which it is compared"),
        (
            f"{prometheus}/graph?g0.tab=0&g0.range_input=15m&g0.expr={score}",
            "the fault scores as ordinary series: one of them rises, and stays at 1",
        ),
        (
            f"{servers.alertmanager.rstrip('/')}/#/alerts?silenced=false&inhibited=true",
            "the alert that became the page, and the symptoms that it holds back",
        ),
    )
    return _text(stops)


def tour_of_several(servers: Servers, faults: Sequence[tuple[str, str, str]]) -> str:
    """Return the addresses worth opening where several training jobs have a fault each.

    Parameters
    ----------
    servers
        What runs.
    faults
        Job, faulty node and what is wrong with it, of each; at most three are shown.
    """
    detector = servers.detector.rstrip("/")
    stops = [
        (f"{detector}/", f"all training jobs: {len(faults)} at fault, each with its own node"),
        *(
            (f"{detector}/jobs/{quote(job_id)}", f"{node}: {what}; why, since when, what to do")
            for job_id, node, what in faults[:_MOST_JOBS]
        ),
        (
            f"{servers.alertmanager.rstrip('/')}/#/alerts?silenced=false&inhibited=true",
            "the alerts that became pages, and the symptoms that they hold back",
        ),
    ]
    return _text(stops)


def _text(stops: Iterable[tuple[str, str]]) -> str:
    lines = [f"  {number}. {url}\n     {see}" for number, (url, see) in enumerate(stops, 1)]
    return "\n".join(["Worth opening, in this order:", *lines])
