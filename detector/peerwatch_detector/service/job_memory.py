"""What the detector holds of one training job from one turn to the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic
from peerwatch_detector.diagnosis.traffic.verdicts import verdicts_of
from peerwatch_detector.diagnosis.traffic.watch import Doing, TrafficWatch
from peerwatch_detector.diagnosis.verdict import SYMPTOMS
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.reading.job_reader import JobReader
from peerwatch_detector.service.evidence import JobEvidence

# A new finding waits so long for what the job failed of: Prometheus sends the text of an alert as
# it first fires, and again only after a minute, when the page has gone out.
ROOT_SECONDS = 10.0
# A job at less than this share of its usual step rate makes no steps to speak of.
_STANDS_RATIO = 0.1
# One that has waited for its ranks for so long stands, also while its usual step rate is not known;
# the web UI calls it stalled from then on.
_STANDS_SECONDS = 60.0


@dataclass(slots=True)
class JobMemory:
    """What the detector holds of one job: samples, deviations, findings, traffic.

    Parameters
    ----------
    reader
        Its samples.
    detector
        What is remembered of it.
    evidence
        What the job itself says.
    watch
        What is remembered of its traffic.
    restored
        Whether the findings published before stand.
    detection, last_success
        What was found last, and when its samples were read.
    traffic
        Its traffic as it was last seen; None = not known.
    seconds
        What its last turn took, by stage.
    carried
        Findings that stood when other settings came; None asks for the published ones.
    """

    reader: JobReader
    detector: JobDetector
    evidence: JobEvidence
    watch: TrafficWatch
    restored: bool = False
    detection: Detection | None = None
    last_success: float | None = None
    traffic: JobTraffic | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    carried: tuple[Finding, ...] | None = None
    _asked_about: frozenset[tuple[str, ...]] = frozenset()
    _answered_about: frozenset[tuple[str, ...]] = frozenset()

    def take_over(self, before: JobMemory, ranks: Mapping[str, int]) -> None:
        """Go on with what stood before the settings changed; the samples are read again.

        Parameters
        ----------
        before
            What was held with the settings before.
        ranks
            By metric, its place in the priority now.
        """
        self.detection, self.last_success = before.detection, before.last_success
        self.evidence, self._answered_about = before.evidence, before._answered_about
        state, past = self.detector.state, before.detector.state
        # What stands is restored, as after a restart: the method looks at its past again.
        state.evidence, state.recent = past.evidence, past.recent
        state.last_absent, state.lived_until = past.last_absent, past.lived_until
        self.carried = before.carried
        if before.restored:
            standing = past.standing.values()
            self.carried = tuple(
                replace(finding, rank=ranks.get(finding.metric, 0)) for finding in standing
            )

    def watch_traffic(self, frames: Mapping[str, JobFrame], detection: Detection) -> None:
        """Take in what samples show of the job's traffic, by what the job was found to do."""
        doing = Doing(self.detector.method.progress_since, detection.step_rate)
        self.traffic = self.watch.update(frames, doing)
        said = () if self.traffic is None else verdicts_of(self.evidence.job_id, self.traffic)
        self.evidence.hear("traffic", said)

    def begin_root(self) -> None:
        """Take down that it is asked what the job fails of, with the findings that stand."""
        self._asked_about = self._keys()

    def end_root(self) -> None:
        """Take down that this was answered, or was not: nothing waits for it any longer."""
        self._answered_about = self._asked_about

    @property
    def wants_root(self) -> bool:
        """Whether it has findings that nobody has asked about yet."""
        return not self._keys() <= self._answered_about

    def to_publish(self, detection: Detection, now: float) -> Detection:
        """Return a detection without new findings that wait for what the job failed of."""
        known = self._answered_about
        told = tuple(
            each
            for each in detection.findings
            if each.key in known or now - each.raised >= ROOT_SECONDS or now < each.raised
        )
        return detection if told == detection.findings else replace(detection, findings=told)

    def _keys(self) -> frozenset[tuple[str, ...]]:
        found = () if self.detection is None else self.detection.findings
        return frozenset(e.key for e in (*found, *self.evidence.findings.standing.values()))

    @property
    def shown(self) -> bool:
        """Whether there is something to say about the job."""
        return self.detection is not None or bool(self.evidence.findings.standing)

    @property
    def named(self) -> Collection[str]:
        """Nodes that have findings of statistics."""
        return self.detector.state.standing.keys()

    @property
    def suffers(self) -> bool:
        """Whether something stands against the job: a finding, a verdict, or that it stands.

        A finding of the root alone does not count: it would keep itself alive.
        """
        standing = self.evidence.findings.standing.values()
        if self.evidence.verdicts or any(each.metric not in SYMPTOMS for each in standing):
            return True
        found = self.detection
        stands = (
            found is not None
            and found.step_rate is not None
            and found.step_rate.ratio < _STANDS_RATIO
        )
        waits = found is not None and (found.progress.waits_seconds or 0.0) >= _STANDS_SECONDS
        return stands or waits or (found is not None and bool(found.findings))


def traffic_watch(config: DetectorConfig) -> TrafficWatch:
    """Return a watch that knows nothing yet."""
    # Recorded rates are those of the shipped rules, whose window is the setting's default; the fast
    # endpoint's are from one second to the next.
    rate = 1.0 if config.preset == "fast" else float(config.rate_window_seconds)
    return TrafficWatch(config.step_seconds, rate, config.peerwatch.patience_seconds)
