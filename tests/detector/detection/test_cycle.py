"""The one function of a cycle: its stages, a large job's parts, and what it holds meanwhile."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from detector.fakes import START, config_for, metric, node_names
from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.detection.pipeline import Samples, cycle, evaluate
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.identity import Identity

_NODES, _SECONDS = 6, 400
_NOW = START + _SECONDS - 1.0


class _Values(np.ndarray):
    """An array that can be referred to weakly."""


def _frames(*names: str) -> dict[str, JobFrame]:
    values = np.random.default_rng(1).normal(50.0, 1.0, (_NODES, _SECONDS)).astype(np.float32)
    values[2, 150:] -= 30
    times = START + np.arange(_SECONDS, dtype=np.float64)
    return {
        name: JobFrame("job-1", name, node_names(_NODES), times, values.copy().view(_Values))
        for name in names
    }


@dataclass
class _Turn:
    """A turn of parts, that notes in what order it is asked."""

    parts: Iterator[Samples]
    job: Job = field(default_factory=lambda: Job("job-1", node_names(_NODES)))
    stages: list[str] = field(default_factory=list)
    published: list[Detection] = field(default_factory=list)

    def read(self) -> Samples:
        self.stages.append("read")
        return next(self.parts)

    def restore(self, samples: Samples) -> None:
        self.stages.append(f"restore {','.join(samples.frames)}")

    def publish(self, detection: Detection, samples: Samples, /) -> None:
        self.stages.append(f"publish {','.join(samples.frames)}")
        self.published.append(detection)


def _detector(*names: str) -> JobDetector:
    config = config_for(*(metric(name) for name in names))
    return JobDetector(config, {name: Identity() for name in names})


def _run(detector: JobDetector, turn: _Turn) -> None:
    running = cycle(detector, turn)
    read = next(running)
    try:
        while True:
            read = running.send(read())
    except StopIteration:
        pass


def test_a_cycle_reads_restores_and_publishes_once() -> None:
    turn = _Turn(iter([Samples(_frames("load"), _NOW)]))
    _run(_detector("load"), turn)
    assert ["read", "restore load", "publish load"] == turn.stages
    (detection,) = turn.published
    assert ["node-02"] == [finding.node for finding in detection.findings]
    assert list(detection.explanations) == list(detection.findings)


def test_samples_at_hand_are_evaluated_alike() -> None:
    turn = _Turn(iter([Samples(_frames("load"), _NOW)]))
    _run(_detector("load"), turn)
    assert repr(turn.published) == repr(
        [evaluate(_detector("load"), turn.job, _frames("load"), _NOW)]
    )


def test_each_part_is_compared_before_the_next_is_read_and_does_not_stay() -> None:
    detector, alive = _detector("load", "power"), []
    compared: list[list[str]] = []
    inner = detector.method.compare

    def compare(job: Job, frames: Mapping[str, JobFrame]) -> None:
        compared.append(list(frames))
        inner(job, frames)

    detector.method.compare = compare  # type: ignore[method-assign]

    def parts() -> Iterator[Samples]:
        for name in ("load", "power"):
            part = _frames(name)
            held = weakref.ref(part[name].values)
            yield Samples(part, _NOW, complete=False)
            del part
            alive.append(held() is not None)
        yield Samples(_frames("load", "power"), _NOW)

    turn = _Turn(parts())
    _run(detector, turn)
    assert [["load"], ["power"]] == compared
    assert [False, False] == alive
    assert ["read", "restore load", "read", "restore power"] == turn.stages[:4]
    assert ["read", "restore load,power", "publish load,power"] == turn.stages[4:]
