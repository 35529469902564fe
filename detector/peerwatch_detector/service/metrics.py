"""What the detector publishes: findings, scores and how the detector itself is doing.

Every exposition is built from one immutable snapshot, so a series exists exactly as long as the
job, node or finding it speaks of: nothing stale is left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import get_args

from peerwatch_common.metrics.exposition import Renderer
from peerwatch_common.metrics.label_length import MAX_LABEL_BYTES
from peerwatch_common.metrics.spec import Family
from peerwatch_common.settings.reload import ReloadFacts
from peerwatch_common.web.facts import WebFacts
from peerwatch_detector import __version__
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.diagnosis.config.watch import ConfigState
from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic
from peerwatch_detector.errors import ReadFailure
from peerwatch_detector.reading import ReadingStatistics
from peerwatch_detector.reading.settings import Api
from peerwatch_detector.service.catalog import family
from peerwatch_detector.service.clock_watch import Direction
from peerwatch_detector.service.configuration_specs import configuration_families
from peerwatch_detector.service.diagnoses import Diagnoses, diagnosis_families
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.signing import Signer
from peerwatch_detector.service.traffic_specs import traffic_families

# Series whose text is kept from one exposition to the next: of 16,000 nodes and ten metrics, three
# each. The largest share that was simulated has 16,500 nodes (docs/scaling.md).
_KEPT_SERIES = 500_000


@dataclass(frozen=True, slots=True)
class Membership:
    """Which detector this is, and what of all it evaluates.

    Parameters
    ----------
    group, member
        Its name, and the group in which that is its own.
    shares
        Whether it shares the jobs with the others of the group.
    jobs
        The jobs it publishes a detection of: whether it owns them, or evaluates them until their
        new owner does.
    """

    group: str = "default"
    member: str = ""
    shares: bool = False
    jobs: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the detector knows at one moment.

    Parameters
    ----------
    detections
        The last detection of every job.
    last_success
        Unix time at which it was last read and evaluated without an error, by job.
    discovered
        Unix time at which the jobs were last read.
    unread_since
        Unix time since which jobs cannot be read, if none of them ever was.
    stages
        Seconds that each stage took last, of ``read`` and ``detect`` the sum over all jobs.
    models
        (metric, model name, fingerprint) in use.
    reading
        What reading cost so far.
    backlog
        How far behind the detector is.
    membership
        Which jobs it evaluates among the detectors.
    preparing
        Whether functions are being compiled, and jobs evaluated by the slower path until then.
    clock_jumps
        How often the machine's clock was set, by direction.
    diagnoses
        What the jobs themselves say; None where they are not asked.
    configurations
        How the nodes of each job are set up.
    traffic
        What each job sends, against its own usual traffic.
    """

    detections: tuple[Detection, ...] = ()
    last_success: dict[str, float] = field(default_factory=dict)
    discovered: float | None = None
    unread_since: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    models: tuple[tuple[str, str, str], ...] = ()
    reading: ReadingStatistics = field(default_factory=ReadingStatistics)
    backlog: Backlog = field(default_factory=Backlog)
    membership: Membership = field(default_factory=Membership)
    preparing: bool = False
    clock_jumps: Mapping[Direction, int] = field(default_factory=dict)
    diagnoses: Diagnoses | None = None
    configurations: Mapping[str, ConfigState] = field(default_factory=dict)
    traffic: Mapping[str, JobTraffic] = field(default_factory=dict)


class Exposition:
    """Renders the present snapshot; any thread may ask.

    Parameters
    ----------
    snapshot
        Returns the snapshot to render.
    facts
        What the web server refused.
    reloads
        How the settings were read last.
    signer
        Signs the addresses of the findings' pictures; None publishes none.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        facts: WebFacts,
        reloads: ReloadFacts | None = None,
        signer: Signer | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._signer = signer
        self._facts = facts
        self._reloads = reloads or ReloadFacts()
        self._renderer = Renderer(_KEPT_SERIES, facts.count_shortened_label)
        self._lock = threading.Lock()

    def render(self, *, openmetrics: bool) -> bytes:
        """Return every metric family of the catalogue as text."""
        with self._lock:
            own = (*_reloads(self._reloads), *_web(self._facts))
            snapshot = self._snapshot()
            found = (*families(snapshot), _pictures(snapshot, self._signer), *own)
            return self._renderer.render(found, openmetrics=openmetrics)


def families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield every metric family of the catalogue but those of web server, settings and pictures."""
    for part in (_findings, _scores, _jobs, _reading, _self, _backlog, _membership):
        yield from part(snapshot)
    yield from diagnosis_families(snapshot.diagnoses)
    yield from configuration_families(snapshot.configurations)
    yield from traffic_families(snapshot.traffic)


def _findings(snapshot: Snapshot) -> Iterator[Family]:
    finding = family("peerwatch_finding")
    start = family("peerwatch_finding_start_timestamp_seconds")
    info = family("peerwatch_finding_info")
    for detection in snapshot.detections:
        for found in detection.findings:
            finding.add_metric(found.key, 1)
            start.add_metric(found.key, found.since)
            if why := detection.explanations.get(found):
                labels = (found.job_id, found.node, found.gpu, found.metric, found.method)
                info.add_metric((*labels, why.meaning.family, why.sentence), 1)
    yield from (finding, start, info)


def _pictures(snapshot: Snapshot, signer: Signer | None) -> Family:
    pictures = family("peerwatch_finding_picture_info")
    for detection in snapshot.detections if signer is not None else ():
        for found in detection.findings:
            # What the job itself says, and a node that is absent, cannot be drawn.
            if signer is not None and found.metric in detection.coverage:
                labels = (found.job_id, found.node, found.gpu, found.metric, found.method)
                address = signer.address(found, detection.time)
                # A longer label is shortened, and an address that was is none.
                if len(address) <= MAX_LABEL_BYTES:
                    pictures.add_metric((*labels, address), 1)
    return pictures


def _scores(snapshot: Snapshot) -> Iterator[Family]:
    fault = family("peerwatch_fault_score")
    normal = family("peerwatch_normal_score")
    continuity = family("peerwatch_continuity_seconds")
    zscore = family("peerwatch_zscore")
    for detection in snapshot.detections:
        job_id = detection.job.job_id
        fault.rows += [((job_id, node), score) for node, score in detection.fault_scores.items()]
        _add(normal, job_id, detection.normal_scores)
        _add(continuity, job_id, detection.continuity)
        _add(zscore, job_id, detection.zscores)
    yield from (fault, normal, continuity, zscore)


def _add(to: Family, job_id: str, by_metric: Mapping[str, Mapping[str, float]]) -> None:
    """Add a sample per node and metric: a large job has some hundred thousand."""
    for metric, values in by_metric.items():
        to.rows += [
            ((job_id, node, metric), value) for node, value in values.items() if isfinite(value)
        ]


def _jobs(snapshot: Snapshot) -> Iterator[Family]:
    nodes = family("peerwatch_job_nodes")
    comparable = family("peerwatch_job_comparable")
    reasons = family("peerwatch_job_not_compared_info")
    progress = family("peerwatch_job_progress_ratio")
    usual = family("peerwatch_job_usual_step_rate")
    coverage = family("peerwatch_data_coverage_ratio")
    success = family("peerwatch_cycle_last_success_timestamp_seconds")
    for detection in snapshot.detections:
        job = detection.job
        nodes.add_metric((job.job_id,), len(job.nodes))
        comparable.add_metric((job.job_id,), float(detection.comparable))
        if detection.not_compared:
            reasons.add_metric((job.job_id, detection.not_compared), 1)
        if (step_rate := detection.step_rate) is not None:
            progress.add_metric((job.job_id,), step_rate.ratio)
            usual.add_metric((job.job_id, step_rate.metric), step_rate.usual)
        for metric, share in detection.coverage.items():
            coverage.add_metric((job.job_id, metric), share)
    for job_id, time in snapshot.last_success.items():
        success.add_metric((job_id,), time)
    yield from (progress, usual, nodes, comparable, reasons, coverage, success)


def _self(snapshot: Snapshot) -> Iterator[Family]:
    build = family("peerwatch_build_info")
    build.add_metric((__version__,), 1)
    jumps = family("peerwatch_clock_jumps_total")
    for direction in get_args(Direction):
        jumps.add_metric((direction,), snapshot.clock_jumps.get(direction, 0))
    preparing = family("peerwatch_preparing")
    preparing.add_metric((), float(snapshot.preparing))
    stages = family("peerwatch_cycle_duration_seconds")
    for stage, seconds in snapshot.stages.items():
        stages.add_metric((stage,), seconds)
    models = family("peerwatch_model_info")
    for labels in snapshot.models:
        models.add_metric(labels, 1)
    discovered = family("peerwatch_discovery_last_success_timestamp_seconds")
    if snapshot.discovered is not None:
        discovered.add_metric((), snapshot.discovered)
    yield from (build, jumps, preparing, stages, models, discovered)


def _reading(snapshot: Snapshot) -> Iterator[Family]:
    reading = snapshot.reading
    plain = {
        "peerwatch_reader_up": float(reading.up),
        "peerwatch_reader_wait_seconds": reading.wait_seconds,
        "peerwatch_read_samples_total": reading.samples,
        "peerwatch_read_bytes_total": reading.received_bytes,
        "peerwatch_read_requests_total": reading.requests,
        "peerwatch_read_splits_total": reading.splits,
        "peerwatch_read_deferred_total": reading.deferred,
        "peerwatch_read_partial_responses_total": reading.partial,
    }
    for name, value in plain.items():
        metric = family(name)
        metric.add_metric((), value)
        yield metric
    errors = family("peerwatch_read_errors_total")
    for reason in get_args(ReadFailure):
        errors.add_metric((reason,), float(reading.errors.get(reason, 0)))
    seconds = family("peerwatch_read_seconds_total")
    for api in get_args(Api):
        seconds.add_metric((api,), reading.seconds.get(api, 0.0))
    info = family("peerwatch_reader_info")
    if reading.api is not None:
        info.add_metric((reading.api,), 1)
    yield from (errors, seconds, info)


def _backlog(snapshot: Snapshot) -> Iterator[Family]:
    lateness = family("peerwatch_cycle_lateness_seconds")
    for job_id, seconds in snapshot.backlog.lateness.items():
        lateness.add_metric((job_id,), seconds)
    skipped = family("peerwatch_cycles_skipped_total")
    skipped.add_metric((), snapshot.backlog.skipped)
    waiting = family("peerwatch_jobs_waiting")
    waiting.add_metric((), snapshot.backlog.waiting)
    yield from (lateness, skipped, waiting)


def _membership(snapshot: Snapshot) -> Iterator[Family]:
    membership = snapshot.membership
    member = family("peerwatch_detector_member")
    if membership.member:
        member.add_metric((membership.group, membership.member), float(membership.shares))
    owner = family("peerwatch_job_owner")
    for job_id, owns in membership.jobs.items():
        owner.add_metric((membership.group, job_id, membership.member), float(owns))
    owned = family("peerwatch_jobs_owned")
    owned.add_metric((), sum(membership.jobs.values()))
    yield from (member, owner, owned)


def _reloads(facts: ReloadFacts) -> Iterator[Family]:
    successful = family("peerwatch_config_last_reload_successful")
    successful.add_metric((), int(facts.successful))
    time = family("peerwatch_config_last_reload_success_timestamp_seconds")
    if facts.success_time is not None:
        time.add_metric((), facts.success_time)
    readings = family("peerwatch_config_reloads_total")
    for result, count in facts.readings.items():
        readings.add_metric((result,), count)
    yield from (successful, time, readings)


def _web(facts: WebFacts) -> Iterator[Family]:
    values = {
        "peerwatch_web_config_reload_failed": int(facts.reload_failed),
        "peerwatch_web_rejected_connections_total": facts.rejected_connections,
        "peerwatch_web_failed_logins_total": facts.failed_logins,
        "peerwatch_web_shortened_labels_total": facts.shortened_labels,
    }
    for name, value in values.items():
        metric = family(name)
        metric.add_metric((), value)
        yield metric
