"""The web UI's view of a job, beside a template that prints the same scores as one table.

A healthy job, ten metrics, with its picture. The plain table has a row for each node and
a cell for each metric, as one's own over Prometheus' answers has; no pictures, no states.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import jinja2
import numpy as np

from bench.detector import TEN
from bench.measurement import Goal, Measurement, alone, cpu_in_turns
from bench.shares import RunningJobs
from peerwatch_common.web.connection import AnswersRequests
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.request import Request
from peerwatch_detector.web.server import application

_VIEWS = 5
_NODES, _LARGE = 1500, (128, 512, 1500, 4096, 12_500)
_PLAIN = jinja2.Environment(autoescape=True).from_string(
    "<table>{% for node, values in rows %}<tr><td>{{ node }}</td>"
    "{% for value in values %}<td>{{ '%.3f'|format(value) }}</td>{% endfor %}</tr>{% endfor %}"
    "</table>"
)


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the CPU time of a view, nothing kept from the one before, and its size."""
    for nodes in _LARGE if options.large else (_NODES,):
        jobs = RunningJobs({"pretrain": nodes})
        jobs.cycle()
        # A site for each view: it keeps the pictures that it has drawn.
        sites = [application(jobs.detector, WebFacts()) for _ in range(_VIEWS)]
        scores = np.random.default_rng(1).random((nodes, len(TEN)))
        rows = [(f"gpu-node-{n:05d}", tuple(map(float, line))) for n, line in enumerate(scores)]
        sizes: dict[str, int] = {}

        def ours(sites: list[AnswersRequests] = sites, sizes: dict[str, int] = sizes) -> None:
            answer = sites.pop().answer(Request("GET", "/jobs/pretrain", "", {}, True, "127.0.0.1"))
            if answer.status != 200:
                raise RuntimeError(f"the view answered {answer.status}")
            sizes["ours"] = len(answer.body)

        def theirs(rows: object = rows, sizes: dict[str, int] = sizes) -> None:
            sizes["plain"] = len(_PLAIN.render(rows=rows).encode())

        def floor(rows: object = rows) -> None:
            json.dumps(rows)

        times = cpu_in_turns((ours, theirs, floor), _VIEWS)
        names = ("Jinja, table of all scores", "json.dumps of the scores")
        large = nodes == _NODES
        yield Measurement(
            "detector, view of a job",
            "ms CPU",
            *(times[0] * 1e3, times[1] * 1e3, names[0], times[2] * 1e3, names[1]),
            goals=(Goal(300),) if large else (),
            nodes=nodes,
        )
        yield Measurement(
            "detector, view of a job, size",
            "kB",
            *(sizes["ours"] / 1e3, sizes["plain"] / 1e3, names[0]),
            goals=(Goal(200),) if large else (),
            nodes=nodes,
        )


if __name__ == "__main__":
    alone(measurements)
