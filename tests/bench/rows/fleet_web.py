"""The rooms of the web UI over 200 jobs of 12,500 nodes, and 50 viewers beside a detector's cycle.

    PYTHONPATH=tests:exporter:detector python -m bench.rows.fleet_web

Every tenth job has a node at fault and a diagnosis; the largest has 1,500 nodes. A room's time is
of who opens it first after a cycle: CPU of all threads of this process, with those of who asks
over HTTP. Viewers reload every ten seconds, as an open room does, in a process of their own; cycles
with them and without take turns.
The CPU of a cycle is that of the thread that evaluates; making samples up does not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

from bench.fleet_web import FLEET, LARGEST, FleetSite
from bench.measurement import Goal, Measurement, alone
from bench.web_views import load_view, viewers
from peerwatch_detector.web.incident.address import Address

_VIEWERS, _TURNS, _LOOKS = 50, 3, 3


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield time and size of every room, and what viewers do to a cycle."""
    site = FleetSite()
    site.server.start()
    try:
        yield from _measured(site)
    finally:
        site.server.stop()


def _measured(site: FleetSite) -> Iterator[Measurement]:
    site.cycle()
    site.fail()
    site.cycle()
    found = {each.job.job_id: each for each in site.detector.snapshot.detections}
    if len(found) != len(FLEET) or not found[LARGEST].findings:
        raise RuntimeError(f"{len(found)} jobs, the largest has {found[LARGEST].findings}")
    base = f"http://127.0.0.1:{site.server.port}"
    flagged = found[LARGEST].findings[0]
    begun = Address(LARGEST, int(flagged.since)).when
    rooms = {
        "fleet": "/",
        "fleet, search": "/?q=finetune",
        "fleet, filter": "/?state=faulty",
        "fleet, second part": "/?page=2",
        "job": f"/jobs/{LARGEST}",
        "job, all nodes": f"/jobs/{LARGEST}?nodes=all",
        "node": f"/nodes/{flagged.node}",
        "incident": f"/incidents/{begun}/{LARGEST}",
        "incidents": "/incidents",
        "actions": "/actions",
        "reliability": "/reliability",
        "JSON": "/api/v1/jobs",
    }
    firsts: dict[str, list[float]] = {name: [] for name in rooms}
    sizes: dict[str, int] = {}
    for _ in range(_LOOKS):
        site.cycle()
        for name, path in rooms.items():
            began = time.process_time()
            _, sizes[name] = load_view(base + path)
            firsts[name].append(time.process_time() - began)
    for name in rooms:
        # Programs read the JSON, and all of it.
        goals = () if name == "JSON" else (300, 200)
        what = f"web UI of {len(FLEET)} jobs, {name}"
        times = (Goal(most) for most in goals[:1])
        # The longest: what was read for one look may still be kept at the next.
        yield Measurement(what, "ms CPU", 1e3 * max(firsts[name]), goals=tuple(times))
        bytes_ = (Goal(most) for most in goals[1:])
        yield Measurement(f"{what}, size", "kB", sizes[name] / 1e3, goals=tuple(bytes_))
    yield from _watched(site, [base + path for name, path in rooms.items() if name != "JSON"])


def _watched(site: FleetSite, addresses: list[str]) -> Iterator[Measurement]:
    turns: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    answered = 0
    for watched in (False, True) * _TURNS:
        with viewers(addresses, _VIEWERS if watched else 0) as views:
            turns[watched].append(site.cycle())
        answered += views()
    if not answered:
        raise RuntimeError("No viewer got an answer.")
    names = (f"{_VIEWERS} viewers", "nobody looks")
    for unit, place, most in (("s", 0, 1.5), ("s CPU", 1, 1.15)):
        with_them, alone_ = (
            statistics.median(turn[place] for turn in turns[each]) for each in (True, False)
        )
        goals = (Goal(most, "ratio"),)
        what = f"detector, {len(FLEET)} jobs, a cycle while {names[0]} look"
        yield Measurement(what, unit, with_them, alone_, names[1], goals=goals)


if __name__ == "__main__":
    alone(measurements)
