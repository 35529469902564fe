"""Why a node was flagged: the numbers of that moment, how sure it is, and what it likely means.

An explanation is made once, when the finding is raised, and then stays as it is: the page a person
opens an hour later shows the evidence the finding was raised on, not what the node does now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.detection.explanation.fault_families import (
    Activity,
    Direction,
    Meaning,
    Shown,
    meaning_of,
)
from peerwatch_detector.detection.findings import ABSENT, Deviation, Finding
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.units import metric_words, quantity

# What began within so many seconds of the finding's metric belongs to the same fault.
_SAME_FAULT_SECONDS = 120.0
# The longest text that fits a pager's list and a text message with some room.
MOST_CHARACTERS = 200
_LONGEST_NAME, _LONGEST_WORD = 48, 24

Words = Literal["likely", "very likely", "almost certainly"]


@dataclass(frozen=True, slots=True)
class MetricEvidence:
    """One metric in which the node deviated when it was flagged.

    Parameters
    ----------
    metric, title, unit, gpu
        Which, by name and for people; ``gpu`` is empty unless one GPU carries the deviation.
    direction
        On which side of where it usually is among its peers.
    value
        Mean over the last seconds of the node, or of the GPU; None = no sample.
    median, low, high
        Of the same mean over the peers: median, 10 % and 90 % quantile; None = no peer has samples.
    factor
        ``value / median``; None where that says nothing.
    since
        Unix time from which it deviates.
    effects
        How far in minimum effect sizes that matter; None for methods that do not measure it.
    kind
        The metric's kind; deviations of one network are one piece of evidence.
    """

    metric: str
    title: str
    unit: str
    gpu: str
    direction: Direction
    value: float | None
    median: float | None
    low: float | None
    high: float | None
    factor: float | None
    since: float
    effects: float | None
    kind: str = "work"

    @property
    def source(self) -> str:
        """Evidence of one source counts once."""
        return "network" if self.kind == "network" else self.metric

    @property
    def plain(self) -> bool:
        """Whether value and median alone show it; a node may have left a permanent offset."""
        if self.value is None or self.median is None:
            return False
        return self.value > self.median if self.direction == "high" else self.value < self.median

    def text(self) -> str:
        """Return the metric with its numbers: "CPU usage 12 % (peers 45 %)"."""
        name = _short(self.title, _LONGEST_WORD)
        value, median = (quantity(part, self.unit) for part in (self.value, self.median))
        if self.value is None:
            return f"{name} {self.direction}"
        if self.plain and value != median:
            return f"{name} {value} (peers {median})"
        return f"{name} {value}, {self.direction} for this node"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What the job did when the node was flagged.

    Parameters
    ----------
    activity
        ``trains``, ``slowed``, ``waits``, ``rests`` or ``unknown``.
    loss
        Share of its progress lost since the node deviates; None = not known.
    waits_seconds
        How long it has waited for one of its ranks; None if it does not.
    still_seconds
        For how long its hardware has done next to nothing, where nobody counts its steps; None if
        it works, or for minutes only.
    """

    activity: Activity
    loss: float | None = None
    waits_seconds: float | None = None
    still_seconds: float | None = None

    def text(self) -> str:
        """Return it in a few words."""
        if self.activity == "waits":
            return f"the job has waited {self.waits_seconds or 0:.0f} s for a rank"
        if self.activity == "slowed":
            return f"the job is slowed by {100 * (self.loss or 0):.0f} %"
        return {"trains": "the job trains on", "rests": "the job rests"}.get(self.activity, "")


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure it is that the node is at fault.

    Parameters
    ----------
    ratio
        0..1, higher = surer. It orders findings; it is not a calibrated probability.
    words
        The same for people, to be followed by "at fault".
    """

    ratio: float
    words: Words


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything a person needs to evaluate a finding.

    Parameters
    ----------
    made
        Unix time up to which samples were used.
    metrics
        The finding's metric first, then the strongest; empty for a vanished node.
    job, confidence, meaning
        What the job did, how sure it is, what it likely means.
    before_restart
        Whether the finding is older than the detector's process, so that the numbers are those of
        the restart.
    sentence
        All of it in at most ``MOST_CHARACTERS`` characters.
    """

    made: float
    metrics: tuple[MetricEvidence, ...]
    job: JobProgress
    confidence: Confidence
    meaning: Meaning
    before_restart: bool
    sentence: str


def explain(
    finding: Finding,
    evidence: list[MetricEvidence],
    job: JobProgress,
    time: float,
    needed_seconds: float,
    *,
    title: str | None = None,
    before_restart: bool = False,
) -> Explanation:
    """Explain a finding.

    Parameters
    ----------
    finding
        Whom and what it is about.
    evidence
        Every metric that deviates on that node now.
    job
        What the job does.
    time
        Unix time of the newest sample used.
    needed_seconds
        A length of the deviation beyond which more adds nothing.
    title
        Of the finding's metric, for people; default: its name, written out.
    before_restart
        Whether the finding was raised by an earlier process.
    """
    ordered = tuple(
        sorted(evidence, key=lambda item: (item.metric != finding.metric, -(item.effects or 0)))
    )
    # After a restart the deviations seem to begin where the samples that were read again do.
    together = [
        item
        for item in ordered
        if before_restart or abs(item.since - finding.since) <= _SAME_FAULT_SECONDS
    ]
    shown: frozenset[Shown] = frozenset((item.metric, item.direction) for item in together)
    if finding.metric == ABSENT:
        shown |= {(ABSENT, "high")}
    strength = max([finding.score, *(item.effects or 0.0 for item in together)])
    confidence = confidence_of(
        # A vanished node is no matter of degree.
        np.inf if finding.metric == ABSENT else strength,
        len({item.source for item in together}),
        (time - finding.since) / needed_seconds,
    )
    meaning = meaning_of(shown, job.activity)
    flagged = metric_words(finding.metric) if title is None else title
    text = _sentence(
        finding, flagged, ordered, job, confidence, meaning, before_restart=before_restart
    )
    return Explanation(time, ordered, job, confidence, meaning, before_restart, text)


def confidence_of(strength: float, sources: int, length: float) -> Confidence:
    """Say how sure it is that a node is at fault.

    A doubt of one half is cut down by each of three things on its own: by up to 60 % by a strong
    deviation (half of that at twice the minimum effect size), by up to 60 % by independent metrics
    (half of that with two), and by up to 40 % by its length. More of any never makes it less sure.

    Parameters
    ----------
    strength
        Largest deviation in minimum effect sizes, or the score of methods that do not measure it.
    sources
        Number of independent metrics; those of the network count as one.
    length
        How long it lasts, as a share of the continuity threshold.

    Returns
    -------
    Confidence
        Between 0.5 and 0.952.
    """
    strong = 1 - 1 / max(1.0, strength)
    many = 1 - 0.5 ** (max(1, sources) - 1)
    long = min(1.0, max(0.0, length))
    doubt = 0.5 * (1 - 0.6 * strong) * (1 - 0.6 * many) * (1 - 0.4 * long)
    ratio = round(1 - doubt, 3)
    words: Words = "likely"
    if ratio >= 0.75:
        words = "almost certainly" if ratio >= 0.9 else "very likely"
    return Confidence(ratio, words)


def measure(
    deviation: Deviation,
    metric: MetricConfig,
    frame: JobFrame,
    peers: Collection[str],
    time: float,
    seconds: float,
) -> MetricEvidence:
    """Put a node's value next to those of its peers.

    Parameters
    ----------
    deviation
        The deviation.
    metric, frame
        Its metric and the samples.
    peers
        The nodes that it is compared with.
    time
        Unix time; later samples are not used.
    seconds
        Length of the trailing mean that is compared.
    """
    # Times of samples are whole milliseconds, and so must be what they are compared with.
    first, last = np.searchsorted(frame.times, (round(time - seconds, 3), time), side="right")
    index = frame.nodes.index(deviation.node)
    if deviation.gpu in frame.gpus and frame.gpu_values is not None:
        levels = _means(frame.gpu_values[:, :, first:last])
        own = float(levels[index, frame.gpus.index(deviation.gpu)])
    else:
        levels = _means(frame.values[:, first:last])
        own = float(levels[index])
    same = np.array([node in peers and node != deviation.node for node in frame.nodes])
    others = levels[same].ravel()
    others = others[np.isfinite(others)]
    low, median, high = np.quantile(others, (0.1, 0.5, 0.9)) if len(others) else [np.nan] * 3
    side = deviation.high if deviation.high is not None else not own < median
    return MetricEvidence(
        deviation.metric,
        metric.shown_title,
        metric.unit,
        deviation.gpu,
        "high" if side else "low",
        _known(own),
        _known(median),
        _known(low),
        _known(high),
        _known(own / median) if median > 0 else None,
        deviation.since,
        deviation.effect_size,
        metric.kind,
    )


def _means(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean of the samples along the last axis; NaN where there is none."""
    known = np.isfinite(values)
    count = known.sum(axis=-1)
    total = np.where(known, values, 0).sum(axis=-1, dtype=np.float64)
    result: NDArray[np.float64] = np.divide(
        total, count, out=np.full(total.shape, np.nan), where=count > 0
    )
    return result


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _sentence(
    finding: Finding,
    title: str,
    metrics: tuple[MetricEvidence, ...],
    job: JobProgress,
    confidence: Confidence,
    meaning: Meaning,
    *,
    before_restart: bool,
) -> str:
    gpu = f" GPU {_short(finding.gpu, _LONGEST_WORD)}" if finding.gpu else ""
    flagged = _short(title, _LONGEST_WORD)
    head = f"{_short(finding.node)}{gpu}"
    since = datetime.fromtimestamp(finding.since, UTC).strftime("since %H:%M:%S UTC")
    if finding.metric == ABSENT:
        what = "cannot be reached, its peers can"
    elif metrics:
        what = metrics[0].text()
    elif before_restart:
        what = f"was unlike its peers in {flagged}, is not now"
    else:
        what = f"unlike its peers in {flagged}"
    more = f" and {len(metrics) - 1} more" if len(metrics) > 1 else ""
    activity = job.text()
    verdict = f"{confidence.words} at fault: {meaning.short}"
    old = "found before the detector's restart" if before_restart else ""
    parts = [f"{head}: {what}{more} {since}", activity, old, verdict]
    text = "; ".join(part for part in parts if part) + "."
    if len(text) > MOST_CHARACTERS:
        # What the job does can be seen elsewhere; who, what and why must not be lost.
        text = "; ".join(part for part in (f"{head}: {what} {since}", verdict)) + "."
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _short(name: str, most: int = _LONGEST_NAME) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
