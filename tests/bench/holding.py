"""What a detector holds in memory of one large job, from its first call on.

A made-up healthy job is read, evaluated and published as the service does it; in the server's place
a reader makes up the samples, so that nothing but the detector is measured. Each size in a process
of its own.

    PYTHONPATH=tests:exporter:detector python -m bench.holding --nodes 1500,12500 --gpus 8
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.bench.command import resident_mebibytes
from peerwatch_detector.bench.synthetic_job import CYCLE, CYCLES, JOB, START
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.frame import Series
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading import Block, Grid, Reading, ReadingStatistics, Selection
from peerwatch_detector.reading.decode.layout import Key
from peerwatch_detector.reading.transport.envelope import Annotations
from peerwatch_detector.reading.transport.request import RangeResult
from peerwatch_detector.service import prepare
from peerwatch_detector.service.detector import Detector

# Noise that repeats only after a time without meaning to anybody.
_NOISE = 65_537


@dataclass(frozen=True, slots=True)
class Held:
    """Resident MiB of one detector.

    Parameters
    ----------
    nodes, gpus
        Of the job; GPUs of a node.
    idle
        Before it knew of the job.
    highest
        At most, at any time.
    cold
        After the first call.
    steady
        After the cycles that followed.
    samples
        Of those, its rings of samples.
    """

    nodes: int
    gpus: int
    idle: float
    highest: float
    cold: float
    steady: float
    samples: float


class MadeUpServer:
    """A reader whose job is healthy, its nodes alike.

    Parameters
    ----------
    config
        Whose metrics are read.
    nodes, gpus
        Of the job; GPUs of a node.
    """

    def __init__(self, config: DetectorConfig, nodes: int, gpus: int) -> None:
        self.statistics = ReadingStatistics(up=True, api="remote_read")
        self.names = tuple(f"gpu-node-{node:05d}" for node in range(nodes))
        self._metrics = {metric.name: metric for metric in config.detection_metrics()}
        rng = np.random.default_rng(nodes)
        noise = 1 + 0.02 * rng.standard_normal(_NOISE + 4096)
        self._noise: NDArray[np.float32] = noise.astype(np.float32)
        units = {"node": ("",), "gpu": tuple(str(gpu) for gpu in range(gpus))}
        self._keys: dict[str, tuple[Key, ...]] = {
            scope: tuple((node, unit) for node in self.names for unit in names)
            for scope, names in units.items()
        }

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        """Read selections on the same steps; nobody is left out."""
        blocks = [self._block(selection, grid) for selection in selections]
        return [
            Reading(selection, RangeResult(block, Annotations(), 0), "remote_read")
            for selection, block in zip(selections, blocks, strict=True)
        ]

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        """Return who runs which job and can be scraped; nothing was published before."""
        if "peerwatch_finding" in query:
            return []
        moment, present = np.array([float(START)]), np.ones(1)
        return [
            Series({"job_id": job_id, "node": name}, moment, present)
            for job_id, names in self._members().items()
            for name in names
        ]

    def _members(self) -> Mapping[str, Sequence[str]]:
        """Return the nodes of every job."""
        return {JOB: self.names}

    def _block(self, selection: Selection, grid: Grid) -> Block:
        if selection.metric not in self._metrics:
            # The ranks publish no progress.
            return Block(grid, (), np.empty((0, grid.steps), np.float32), 0)
        metric = self._metrics[selection.metric]
        keys = self._keys[metric.scope]
        begins = (np.arange(len(keys)) * 7919 + grid.start // grid.step) % _NOISE
        every = np.lib.stride_tricks.sliding_window_view(self._noise, grid.steps)
        values = every[begins]
        values *= np.float32(metric.bounds[0] + 0.4 * (metric.bounds[1] - metric.bounds[0]))
        return Block(grid, keys, values, values.size)


def measure(nodes: int, gpus: int, settings: Mapping[str, object]) -> Held:
    """Let a detector find, read and evaluate the job in this process."""
    config = DetectorConfig.model_validate(settings)
    server = MadeUpServer(config, nodes, gpus)
    now = [float(START + config.history_seconds)]
    # As the service does before its first cycle.
    prepare.prepare()
    detector = Detector(config, server, configured_bundle(config)[0], clock=lambda: now[0])
    idle = resident_mebibytes()
    detector.cycle()
    cold = resident_mebibytes()
    for _ in range(CYCLES):
        now[0] += CYCLE
        detector.cycle()
    (detection,) = detector.snapshot.detections
    if len(detection.job.nodes) != nodes or min(detection.coverage.values()) < 1:
        raise RuntimeError(f"Evaluated {len(detection.job.nodes)} nodes: {detection.coverage}.")
    held = detector.memories[JOB].reader
    assert held is not None
    samples = held.resident_bytes / 2**20
    return Held(nodes, gpus, idle, _highest(), cold, resident_mebibytes(), samples)


def _highest() -> float:
    """Return the highest resident memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def table(found: Sequence[Held]) -> str:
    """Return the results for people, in Markdown."""
    lines = [
        "| nodes | GPUs of each | idle, MiB | highest, MiB | after the cold call, MiB "
        "| after the cycles, MiB | of it samples, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {held.nodes} | {held.gpus} | {held.idle:.0f} | {held.highest:.0f} | {held.cold:.0f} | "
        f"{held.steady:.0f} | {held.samples:.0f} |"
        for held in found
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="1500,12500", help="sizes (1500,12500)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of a node (8)")
    parser.add_argument("--method", default="peerwatch", help="(peerwatch)")
    parser.add_argument("--held", type=int, help="held_samples; the default's unless given")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(nodes) for nodes in options.nodes.split(",")]
    settings: dict[str, object] = {"method": options.method}
    if options.held is not None:
        settings["held_samples"] = options.held
    if options.here:
        print(json.dumps(asdict(measure(sizes[0], options.gpus, settings))))
        return
    print(table([_apart(nodes) for nodes in sizes]))


def _apart(nodes: int) -> Held:
    """Measure in a process of its own, with the options of this one but for the size."""
    command = [sys.executable, "-m", "bench.holding", *sys.argv[1:], "--here"]
    done = subprocess.run([*command, "--nodes", str(nodes)], check=True, stdout=subprocess.PIPE)
    return Held(**json.loads(done.stdout))


if __name__ == "__main__":
    main()
