"""What the detector does for one training job, and what it publishes of all.

The detector keeps nothing on disk. After a restart it reads the last minutes again, walks
through them as it would have done then, and takes up the findings that it published before.
A Prometheus that cannot be read leaves everything as it stood: findings stand, the page is
served, a metric says so, and the next cycle tries again. When which job has its turn is decided
in ``loop`` and ``schedule``, which detector evaluates it in ``members``.
"""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.pipeline import Detection, JobState, detect, look_ahead
from peerwatch_detector.detection.steps import Ticks
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.reading.job_reader import JobReader, JobReading
from peerwatch_detector.reading.reader import Reader
from peerwatch_detector.service.change_log import DISCOVERY, MEMBERS, Trouble, log_changes
from peerwatch_detector.service.discovery import Discovery, Found
from peerwatch_detector.service.members import Group, Sight
from peerwatch_detector.service.metrics import Membership, Snapshot
from peerwatch_detector.service.restore import RESTORE_SECONDS, distrust, restore_findings
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.workers import Outcome, attempt

logger = logging.getLogger(__name__)

# A clock that was set back by more than so many seconds makes a job begin as after a restart.
_CLOCK_WENT_BACK = 10.0


@dataclass(slots=True)
class JobMemory:
    """What the detector holds of one job: samples, deviations, findings.

    The state counts ticks; ``seconds`` is what its last turn took, by stage.
    """

    reader: JobReader | None = None
    state: JobState = field(default_factory=JobState)
    restored: bool = False
    detection: Detection | None = None
    last_success: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def needed_from(self) -> dict[str, int]:
        """By metric, the tick from which samples of it are needed."""
        return {name: one.needed_from for name, one in self.state.metrics.items()}


@dataclass(frozen=True, slots=True)
class Reading:
    """A job's new samples, on their way to the evaluate.

    Parameters
    ----------
    job, memory
        The job as it was last discovered, and what is held of it.
    known
        Unix time of that discovery.
    now
        Unix time at which it was read.
    frames
        By metric.
    errors
        By metric, why it could not be read; None if it could.
    """

    job: Job
    memory: JobMemory
    known: float
    now: float
    frames: dict[str, JobFrame]
    errors: Mapping[str, ReadError | None]

    @property
    def moment(self) -> float:
        """The time to evaluate at: nobody is silent for longer than somebody has looked."""
        return self.known if self.job.absent_since else self.now


class Detector:
    """Evaluates training jobs.

    Each job's samples are read in any thread, one at a time, and a large job's first ones are
    compared there; all else happens in one thread.

    Parameters
    ----------
    config
        Settings.
    reader
        Where series come from.
    bundle
        Trained models.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        config: DetectorConfig,
        reader: Reader,
        bundle: Bundle,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.reader = reader
        self.clock = clock
        self.metrics = config.detection_metrics()
        self._ticks = Ticks.of(config.step_seconds)
        self.models = bundle.models(config, self.metrics)
        self.memories: dict[str, JobMemory] = {}
        self.trouble = Trouble()
        self.group = Group(
            config.replicas.member or socket.gethostname(), config.replicas.replication
        )
        self._discovery = Discovery(config, reader, RESTORE_SECONDS)
        self._jobs: dict[str, Job] = {}
        self._discovered: float | None = None
        self._owned: set[str] = set()
        # Who shares the jobs with this detector is not known before it has looked once.
        self._may_evaluate = not config.replicas.enabled
        self._seconds = {"discover": 0.0, "publish": 0.0}
        labels = ((name, model.name, model.fingerprint) for name, model in self.models.items())
        self.snapshot = Snapshot(models=tuple(labels))

    def cycle(self) -> None:
        """Discover, evaluate every job, publish: at once what ``Loop`` spreads over time."""
        self.discovered(attempt(self.find))
        if self.config.replicas.enabled:
            self.looked(attempt(self.look))
        for job_id in self.share():
            self.detect(job_id, attempt(self.reading(job_id)))
        self.publish(Backlog())

    def find(self) -> Found:
        """Ask which jobs run; one thread at a time.

        Raises
        ------
        ReadError
            As the reader.
        """
        return self._discovery.find(self.clock())

    def discovered(self, outcome: Outcome[Found]) -> None:
        """Take in the jobs that run; without an answer those known go on."""
        self.trouble.report(DISCOVERY, outcome.error)
        self._seconds["discover"] = outcome.seconds
        if outcome.result is not None:
            self._discovered = outcome.result.time
            self._jobs = {job.job_id: job for job in outcome.result.jobs}
        self._follow()

    def look(self) -> Sight:
        """Ask who else is there and evaluates what, in any thread.

        Raises
        ------
        ReadError
            As the reader.
        """
        return self._discovery.sight()

    def looked(self, outcome: Outcome[Sight]) -> None:
        """Take in who is there; without an answer all stay who they were."""
        self.trouble.report(MEMBERS, outcome.error)
        before = self.group.members
        if outcome.result is not None:
            self.group.update(outcome.result)
        if self.group.members != before:
            logger.info("members_changed members=%s", ",".join(self.group.members))
        self._may_evaluate = True
        self._follow()

    def share(self) -> dict[str, int]:
        """Return the number of nodes of every job that this detector evaluates."""
        return {job_id: len(self._jobs[job_id].nodes) for job_id in sorted(self.memories)}

    def reading(self, job_id: str) -> Callable[[], Reading]:
        """Return the work of reading one job: for any thread, as long as no other has it."""
        assert self._discovered is not None, "a job of the share has been discovered"
        memory = self.memories[job_id]
        if memory.last_success is not None:
            back = memory.last_success - self.clock()
            if back > _CLOCK_WENT_BACK:
                # What is held lies in the future, and would hide all that comes until then.
                logger.warning("clock_went_back job_id=%s seconds=%.0f", job_id, back)
                memory = self.memories[job_id] = JobMemory(detection=memory.detection)
        return partial(self._reading, self._jobs[job_id], memory, self._discovered)

    def detect(self, job_id: str, outcome: Outcome[Reading]) -> bool:
        """Evaluate a job that has been read, and return whether both went well."""
        memory, reading = self.memories.get(job_id), outcome.result
        if memory is None or (reading is not None and reading.memory is not memory):
            # It has ended, or gone to another detector, in the meantime.
            return True
        memory.seconds["read"] = outcome.seconds
        error = outcome.error
        if reading is not None:
            for metric, failure in reading.errors.items():
                self.trouble.report(("job", job_id, metric), failure)
            evaluated = attempt(partial(self._detect, reading))
            memory.seconds["detect"], error = evaluated.seconds, evaluated.error
        # One job that cannot be read, or that meets a bug, must not stop the others.
        self.trouble.report(("job", job_id), error)
        return error is None

    def publish(self, backlog: Backlog) -> None:
        """Put a new snapshot in the place of the old one."""
        began = time.perf_counter()
        replicas = self.config.replicas
        evaluated = {job_id: m for job_id, m in self.memories.items() if m.detection}
        self.snapshot = Snapshot(
            detections=tuple(m.detection for m in evaluated.values() if m.detection),
            last_success={
                job_id: m.last_success
                for job_id, m in evaluated.items()
                if m.last_success is not None
            },
            discovered=self._discovered,
            stages=self._stages(),
            models=self.snapshot.models,
            reading=self.reader.statistics,
            backlog=backlog,
            membership=Membership(
                replicas.group,
                self.group.own,
                shares=replicas.enabled,
                jobs={job_id: job_id in self._owned for job_id in evaluated},
            ),
        )
        self._seconds["publish"] = time.perf_counter() - began

    def _stages(self) -> dict[str, float]:
        turns = [memory.seconds for memory in self.memories.values()]
        of_jobs = {stage: sum(one.get(stage, 0.0) for one in turns) for stage in ("read", "detect")}
        return self._seconds | of_jobs

    def _follow(self) -> None:
        """Begin with the jobs that have come to this detector, and give up those that have gone."""
        if not self._may_evaluate:
            return
        wanted = self._owned = set(self._jobs)
        if self.config.replicas.enabled:
            evaluated = {job_id for job_id, memory in self.memories.items() if memory.detection}
            wanted = self.group.share(self._jobs, evaluated)
            self._owned = {job_id for job_id in wanted if self.group.owns(job_id)}
        for job_id in sorted(wanted - self.memories.keys()):
            self.memories[job_id] = JobMemory()
            logger.info("job_found job_id=%s nodes=%d", job_id, len(self._jobs[job_id].nodes))
        for job_id in sorted(self.memories.keys() - wanted):
            del self.memories[job_id]
            self.trouble.forget_job(job_id)
            event = "job_handed_over" if job_id in self._jobs else "job_ended"
            logger.info("%s job_id=%s", event, job_id)

    def _reading(self, job: Job, memory: JobMemory, known: float) -> Reading:
        now = self.clock()
        if memory.reader is None:
            memory.reader = JobReader(job.job_id, self.reader, self.config)
        parts = memory.reader.parts(job.nodes)
        names = next(parts)
        if len(names) == len(self.metrics):
            found = memory.reader.read(job.nodes, now, memory.needed_from)
        else:
            found = self._read_in_parts(job, memory, now, itertools.chain([names], parts))
        if found.trouble is not None:
            raise found.trouble
        if not memory.restored:
            self._restore(job, memory, found.frames)
        return Reading(job, memory, known, now, found.frames, found.errors)

    def _read_in_parts(
        self, job: Job, memory: JobMemory, now: float, parts: Iterable[Collection[str]]
    ) -> JobReading:
        """Read a large job's history, and compare each part before the next takes its room."""
        assert memory.reader is not None, "there is one before anything is read"
        left = self.config.prometheus.reading.deadline_seconds
        errors: dict[str, ReadError | None] = {}
        restored: list[Finding] = []
        for names in parts:
            began = time.perf_counter()
            found = memory.reader.read(job.nodes, now, memory.needed_from, names, left)
            left -= time.perf_counter() - began
            errors |= found.errors
            if found.grave is not None:
                raise found.grave
            if memory.restored:
                distrust(restored, memory.state, found.frames, self.config)
            else:
                restored = self._restore(job, memory, found.frames)
            look_ahead(job, found.frames, self.models, self.config, memory.state)
            # Or these samples would stay until the next part is read.
            del found
            memory.reader.release(memory.needed_from, now)
        good = [name for name, error in errors.items() if error is None]
        return JobReading(memory.reader.frames(job.nodes, now, memory.needed_from, good), errors)

    def _restore(
        self, job: Job, memory: JobMemory, frames: Mapping[str, JobFrame]
    ) -> list[Finding]:
        found = restore_findings(self.reader, job, memory.state, frames, self.metrics, self.config)
        memory.restored = True
        return found

    def _detect(self, reading: Reading) -> None:
        memory, state = reading.memory, reading.memory.state
        before = self._ticks.standing_in_seconds(state.standing)
        detection = detect(
            reading.job, reading.frames, self.models, self.config, state, reading.moment
        )
        memory.detection, memory.last_success = detection, reading.now
        after = {finding.node: finding for finding in detection.findings}
        log_changes(before, after, detection.explanations)
