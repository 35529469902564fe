"""What the detector does for one training job, and what it publishes of all.

The detector keeps nothing on disk. After a restart it reads the last minutes again, evaluates
them as it would have done then, and takes up the findings that it published before.
A Prometheus that cannot be read leaves everything as it stood: findings stand, endpoints are
served, a metric says so, and the next cycle tries again. When which job has its turn is decided
in ``loop`` and ``schedule``, which detector evaluates it in ``members``.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from peerwatch_common.settings.reload import ReloadFacts
from peerwatch_detector import compiled
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.diagnosis.diagnoser import Diagnoser
from peerwatch_detector.diagnosis.findings import with_evidence
from peerwatch_detector.diagnosis.registry import DIAGNOSERS
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.reading.instant_reader import Instants
from peerwatch_detector.reading.job_reader import JobReader
from peerwatch_detector.reading.reader import Reader
from peerwatch_detector.service.change_log import DISCOVERY, MEMBERS, FailureLog
from peerwatch_detector.service.clock_watch import LEAST_JUMP_SECONDS, ClockWatch
from peerwatch_detector.service.configurations import JobConfigurations
from peerwatch_detector.service.diagnoses import Diagnoses
from peerwatch_detector.service.discovery import Discovery, Found
from peerwatch_detector.service.evidence import Answered, DiagnoserFailures, JobEvidence
from peerwatch_detector.service.job_memory import JobMemory, traffic_watch
from peerwatch_detector.service.members import Group, MembershipView
from peerwatch_detector.service.metrics import Membership, Snapshot
from peerwatch_detector.service.restore import RESTORE_SECONDS
from peerwatch_detector.service.roots import JobRoots
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.turn import JobTurn, Reading
from peerwatch_detector.service.workers import Outcome, attempt

logger = logging.getLogger(__name__)


class Detector:
    """Evaluates training jobs.

    Each job's samples are read in any thread, one at a time; all else happens in one thread. A
    large job's first samples come in parts, of which each is compared before the next is read.

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
    steady
        Seconds of a clock that nobody sets, to notice that the other one was.
    instants
        Where the jobs' own evidence is read; None asks for none.
    diagnosers
        What makes verdicts of it.
    configurations
        How the jobs' nodes are set up; None does not compare it.
    roots
        What jobs fail of; None does not ask for it.
    """

    def __init__(
        self,
        config: DetectorConfig,
        reader: Reader,
        bundle: Bundle,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        instants: Instants | None = None,
        diagnosers: Sequence[type[Diagnoser]] = DIAGNOSERS,
        configurations: JobConfigurations | None = None,
        roots: JobRoots | None = None,
    ) -> None:
        self.config = config
        self.reader = reader
        self.clock = clock
        # A clock of a test is steady itself.
        self._clock_watch = ClockWatch(
            clock, steady or (time.monotonic if clock is time.time else clock)
        )
        self.reloads = ReloadFacts()
        self.metrics = config.detection_metrics()
        self.models = bundle.models(config, self.metrics)
        self.memories: dict[str, JobMemory] = {}
        self.failures = FailureLog()
        self.instants = instants
        self.configurations, self.roots = configurations, roots
        self._diagnosers = diagnosers
        self._diagnoser_failures = DiagnoserFailures()
        self.group = Group(
            config.replicas.member or socket.gethostname(), config.replicas.replication
        )
        self._discovery = Discovery(config, reader, RESTORE_SECONDS)
        self._jobs: dict[str, Job] = {}
        # Those of which only a part has been evaluated yet.
        self._turns: dict[str, JobTurn] = {}
        self._discovered: float | None = None
        self._unread_since: float | None = None
        self._owned: set[str] = set()
        # Who shares the jobs with this detector is not known before the first view of the members.
        self._may_evaluate = not config.replicas.enabled
        self._seconds = {"discover": 0.0, "publish": 0.0}
        self.snapshot = Snapshot(models=self._model_labels(), preparing=compiled.preparing())

    def follow(self, config: DetectorConfig, bundle: Bundle) -> None:
        """Go on with other settings: jobs are read again, as after a restart; what stands stays."""
        metrics = config.detection_metrics()
        models = bundle.models(config, metrics)
        self.config, self.metrics, self.models = config, metrics, models
        self._discovery.config = config
        self.snapshot = replace(self.snapshot, models=self._model_labels())
        ranks = {metric.name: rank for rank, metric in enumerate(metrics, start=1)}
        for job_id, memory in self.memories.items():
            fresh = self._new_memory(job_id)
            fresh.take_over(memory, ranks)
            self.memories[job_id] = fresh

    def _model_labels(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((name, model.name, model.fingerprint) for name, model in self.models.items())

    def cycle(self) -> None:
        """Discover, evaluate every job, publish: at once what ``Loop`` spreads over time."""
        self.discovered(attempt(self.find))
        if self.config.replicas.enabled:
            self.found_members(attempt(self.find_members))
        for job_id in self.share():
            self.detect(job_id, attempt(self.reading(job_id)))
            while self.has_more(job_id):
                self.detect(job_id, attempt(self.reading(job_id)))
            if self.instants is not None:
                self.diagnose(job_id, attempt(self.asking(job_id)))
            if self.roots is not None:
                memory = self.memories[job_id]
                self.roots.take(memory, attempt(self.roots.asking(memory)), self.failures)
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
        self.failures.report(DISCOVERY, outcome.error)
        self._seconds["discover"] = outcome.seconds
        if outcome.result is not None:
            self._discovered = outcome.result.time
            self._jobs = {job.job_id: job for job in outcome.result.jobs}
        self._follow()

    def find_members(self) -> MembershipView:
        """Ask who else is there and evaluates what, in any thread.

        Raises
        ------
        ReadError
            As the reader.
        """
        return self._discovery.membership()

    def found_members(self, outcome: Outcome[MembershipView]) -> None:
        """Take in who is there; without an answer all stay who they were."""
        self.failures.report(MEMBERS, outcome.error)
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
        if (begun := self._turns.get(job_id)) is not None and begun.memory is memory:
            return begun.reading
        if memory.last_success is not None:
            back = memory.last_success - self.clock()
            if back > LEAST_JUMP_SECONDS:
                # What is held lies in the future, and would hide all that comes until then.
                logger.info("job_read_anew job_id=%s clock_went_back_seconds=%.0f", job_id, back)
                fresh = self._new_memory(job_id)
                fresh.detection, fresh.evidence = memory.detection, memory.evidence
                fresh.detector.state.evidence = memory.evidence.findings.standing
                fresh.detector.state.lived_until = max(
                    memory.last_success, memory.detector.state.lived_until
                )
                memory = self.memories[job_id] = fresh
        return JobTurn(
            self._jobs[job_id],
            memory,
            self._discovered,
            self.config,
            self.reader,
            self.clock,
            diagnoses=self.instants is not None,
        ).reading

    def has_more(self, job_id: str) -> bool:
        """Whether only a part of a job has been evaluated; ``reading`` goes on with the next."""
        return job_id in self._turns

    def detect(self, job_id: str, outcome: Outcome[Reading]) -> bool:
        """Evaluate a job that has been read, and return whether both went well."""
        memory, reading = self.memories.get(job_id), outcome.result
        begun = self._turns.pop(job_id, None)
        if memory is None or (reading is not None and reading.turn.memory is not memory):
            # It has ended, or gone to another detector, in the meantime.
            if reading is not None:
                reading.turn.close()
            return True
        spent = {} if begun is None else begun.seconds
        memory.seconds = {"read": spent.get("read", 0.0) + outcome.seconds}
        error = outcome.error
        if reading is not None:
            turn, evaluated = reading.turn, attempt(partial(reading.turn.go_on, reading.samples))
            memory.seconds["detect"] = spent.get("detect", 0.0) + evaluated.seconds
            turn.seconds, error = memory.seconds, evaluated.error
            if evaluated.result:
                self._turns[job_id] = turn
                return True
            for metric, failure in turn.errors.items():
                self.failures.report(("job", job_id, metric), failure)
        # One job that cannot be read, or that meets a bug, must not stop the others.
        self.failures.report(("job", job_id), error)
        return error is None

    def asking(self, job_id: str) -> Callable[[], Answered]:
        """Return the work of asking a job's diagnosers: for any thread, as long as no other has it.

        It has nothing to do with the job's turn: it may be asked while it is read or evaluated.
        """
        assert self.instants is not None, "evidence is asked for only where it can be read"
        return partial(self.memories[job_id].evidence.ask, self.instants, self.clock)

    def diagnose(self, job_id: str, outcome: Outcome[Answered]) -> None:
        """Take in what a job's diagnosers say; without an answer all stands as it stood."""
        memory, answered = self.memories.get(job_id), outcome.result
        if memory is None or (answered is not None and answered.evidence is not memory.evidence):
            # It has ended, or gone to another detector, in the meantime.
            return
        self.failures.report(("job", job_id, "evidence"), outcome.error)
        if answered is None:
            return
        now = self.clock()
        # What begins on other nodes within minutes of them is their symptom.
        memory.detector.state.recent += memory.evidence.take(answered, now, memory.named)
        self._diagnoser_failures.add(answered.errors)
        for diagnoser in memory.evidence.diagnosers:
            error = answered.errors.get(diagnoser.name)
            self.failures.report(("job", job_id, "evidence", diagnoser.name), error)

    def publish(self, backlog: Backlog) -> None:
        """Put a new snapshot in the place of the old one."""
        began = time.perf_counter()
        self._clock_watch.check()
        replicas = self.config.replicas
        evaluated = {job_id: m for job_id, m in self.memories.items() if m.detection}
        last_success = {
            job_id: m.last_success for job_id, m in evaluated.items() if m.last_success is not None
        }
        if last_success or not self.failures.of_a_job:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = self.clock()
        self.snapshot = Snapshot(
            detections=tuple(
                self._shown(job_id, m) for job_id, m in self.memories.items() if m.shown
            ),
            diagnoses=self._diagnoses(),
            traffic={job_id: m.traffic for job_id, m in evaluated.items() if m.traffic},
            configurations=self.configurations.states(self.memories) if self.configurations else {},
            last_success=last_success,
            discovered=self._discovered,
            unread_since=self._unread_since,
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
            preparing=compiled.preparing(),
            clock_jumps=self._clock_watch.jumps,
        )
        self._seconds["publish"] = time.perf_counter() - began

    def _shown(self, job_id: str, memory: JobMemory) -> Detection:
        """Return what is known of a job: its detection, with the evidence in it."""
        detection = memory.detection
        if detection is None:
            # The job speaks before its first samples have been read and compared.
            job = self._jobs.get(job_id, Job(job_id, ()))
            detection = Detection.none(job, self.clock(), "not compared yet")
        shown = with_evidence(detection, memory.evidence.findings)
        return shown if self.roots is None else memory.to_publish(shown, self.clock())

    def _diagnoses(self) -> Diagnoses | None:
        if self.instants is None:
            return None
        read = [each.errors for each in (self.instants, self.roots) if each is not None]
        return Diagnoses.of(self.memories.values(), self._diagnoser_failures.total(*read))

    def _stages(self) -> dict[str, float]:
        turns = [memory.seconds for memory in self.memories.values()]
        of_jobs = {
            stage: sum(turn.get(stage, 0.0) for turn in turns) for stage in ("read", "detect")
        }
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
            self.memories[job_id] = self._new_memory(job_id)
            logger.info("job_found job_id=%s nodes=%d", job_id, len(self._jobs[job_id].nodes))
        for job_id in sorted(self.memories.keys() - wanted):
            del self.memories[job_id]
            self.failures.forget_job(job_id)
            event = "job_handed_over" if job_id in self._jobs else "job_ended"
            logger.info("%s job_id=%s", event, job_id)

    def _new_memory(self, job_id: str) -> JobMemory:
        reader = JobReader(job_id, self.reader, self.config)
        evidence = JobEvidence.begin(job_id, self._diagnosers)
        detector = JobDetector(self.config, self.models)
        detector.state.evidence = evidence.findings.standing
        return JobMemory(reader, detector, evidence, traffic_watch(self.config))
