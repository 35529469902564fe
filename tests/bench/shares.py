"""64 jobs of 1,500 nodes over 8 detectors' shares, one detector after the other.

    PYTHONPATH=tests:exporter:detector python -m bench.shares [--jobs 64] [--members 8]

Jobs are shared out as the service does it, by rendezvous hashing. Each detector runs in a process
of its own: a first call of all its jobs, then cycles. The samples are made up in the server's
place, and making them up does not count, so reading comes on top (``bench.reading``).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bench.detector import TEN
from bench.holding import MadeUpServer
from peerwatch_common.memory import search_rarely
from peerwatch_detector.bench.command import resident_mebibytes
from peerwatch_detector.bench.synthetic_job import CYCLE, START
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading import Grid, Reading, Selection
from peerwatch_detector.service import prepare
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.members import owners

_CYCLES = 4


class _Server(MadeUpServer):
    """Many jobs, each as healthy as the other; the CPU time it takes itself is kept."""

    def __init__(self, config: DetectorConfig, jobs: Mapping[str, int]) -> None:
        super().__init__(config, max(jobs.values()), 1)
        self.jobs = dict(jobs)
        self.cpu = 0.0
        self._all_keys = self._keys

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        """Make up a job's samples; its nodes are the first of all."""
        began = time.process_time()
        count = len(nodes) or max(self.jobs.values())
        self._keys = {scope: keys[:count] for scope, keys in self._all_keys.items()}
        found = super().read(selections, grid, nodes, deadline)
        self.cpu += time.process_time() - began
        return found

    def _members(self) -> Mapping[str, Sequence[str]]:
        return {job_id: self.names[:count] for job_id, count in self.jobs.items()}


class RunningJobs:
    """A detector of method peerwatch with ten metrics, and jobs that run.

    Parameters
    ----------
    jobs
        Nodes of each.
    """

    def __init__(self, jobs: Mapping[str, int]) -> None:
        settings = {"method": "peerwatch", "metrics": {"enabled": list(TEN)}}
        config = DetectorConfig.model_validate(settings)
        prepare.prepare()
        # As the service does once it is prepared.
        search_rarely()
        self.server = _Server(config, jobs)
        self._now = float(START + config.history_seconds)
        self.detector = Detector(
            config, self.server, configured_bundle(config)[0], clock=lambda: self._now
        )
        self.idle = resident_mebibytes()

    def cycle(self) -> float:
        """Evaluate all jobs, and let 15 s pass; return the CPU seconds without the server's."""
        began, own = time.process_time(), self.server.cpu
        self.detector.cycle()
        self._now += CYCLE
        return time.process_time() - began - (self.server.cpu - own)


@dataclass(frozen=True, slots=True)
class Share:
    """What one detector takes: jobs, CPU seconds of the first call and of a cycle, MiB."""

    member: str
    jobs: int
    nodes: int
    first: float
    cycle: float
    idle: float
    resident: float


def shares_of(jobs: int, members: int) -> dict[str, list[str]]:
    """Return the jobs of each detector."""
    names = [f"peerwatch-detector-{number}" for number in range(members)]
    found: dict[str, list[str]] = {name: [] for name in names}
    for number in range(jobs):
        job = f"pretrain-{number}"
        (owner,) = owners(job, names, 1)
        found[owner].append(job)
    return found


def measure(member: str, jobs: Sequence[str], nodes: int) -> Share:
    """Run one detector's share in this process."""
    running = RunningJobs(dict.fromkeys(jobs, nodes))
    first = running.cycle()
    cycles = [running.cycle() for _ in range(_CYCLES)]
    found = running.detector.snapshot.detections
    if sorted(len(each.job.nodes) for each in found) != [nodes] * len(jobs):
        raise RuntimeError(f"{len(found)} of {len(jobs)} jobs were evaluated")
    cycle = float(np.median(cycles))
    held = resident_mebibytes()
    return Share(member, len(jobs), nodes * len(jobs), first, cycle, running.idle, held)


def table(found: Sequence[Share]) -> str:
    """Return the shares and their sum, in Markdown."""
    lines = [
        "| detector | jobs | nodes | first call, CPU s | a cycle, CPU s | MiB |",
        "|---|---|---|---|---|---|",
    ]
    rows = [(each.member, each) for each in found]
    lines += [
        f"| {name} | {each.jobs} | {each.nodes:,} | {each.first:.1f} | {each.cycle:.2f} "
        f"| {each.resident:.0f} |"
        for name, each in rows
    ]
    total = [sum(getattr(each, name) for each in found) for name in Share.__slots__[1:5]]
    lines.append(
        f"| all | {total[0]} | {total[1]:,} | {total[2]:.1f} | {total[3]:.2f} "
        f"| {sum(each.resident for each in found):.0f} |"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure one detector after the other and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--nodes", type=int, default=1500, help="of each job (%(default)s)")
    parser.add_argument("--members", type=int, default=8, help="detectors (%(default)s)")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    shares = shares_of(options.jobs, options.members)
    if options.here:
        jobs = shares[options.here]
        print(json.dumps(asdict(measure(options.here, jobs, options.nodes))))
        return
    found = []
    for member, jobs in shares.items():
        if jobs:
            command = [sys.executable, "-m", "bench.shares", *sys.argv[1:], "--here", member]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            found.append(Share(**json.loads(done.stdout)))
    print(table(found))


if __name__ == "__main__":
    main()
