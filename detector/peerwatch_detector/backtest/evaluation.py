"""How well findings fit the truth of labelled cases: precision, recall, F1, delay.

The unit is the fault instance, not the sample, and nothing is adjusted in the detector's favour:
an instance is found only if the first finding at or after its onset names a faulty node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.backtest.cases import DESCRIPTION
from peerwatch_detector.backtest.run import CaseResult

# Normal quantile of a two-sided 95 % interval.
_Z = 1.959964
# Of the bootstrap: beyond each end of a 95 % interval 50 of them are left.
_RESAMPLES = 2000
# In seconds.
_DAY = 86_400.0
# Upper ends of the groups of job sizes. Chosen: twice the last, four times where cases are few.
_SIZES = (4, 8, 16, 32, 64, 256, 1024)
HEALTHY = "healthy"


class FindingLike(Protocol):
    """What is evaluated of a finding: whom it names, and when."""

    @property
    def node(self) -> str:
        """The node flagged."""

    @property
    def gpu(self) -> str:
        """The GPU flagged; empty = the node as a whole."""

    @property
    def raised(self) -> float:
        """Seconds from the start of the case."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A finding that nothing was measured for; see ``guesses``."""

    node: str
    raised: float
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class CaseEvaluation:
    """How one case was evaluated.

    Parameters
    ----------
    case, fault, nodes
        Its name, its fault (None = healthy), the size of its job.
    found
        Whether the first finding at or after the onset names a faulty node.
    false_findings
        Findings that name another node, come before the onset, or stand in a healthy case.
    delay_seconds, lead_seconds
        From the onset to the finding, and from the finding to the halt; None if there is none.
    node_days
        Nodes times length.
    right_gpu
        Whether the finding that counts names a GPU at fault; None where it is not known which was,
        or nothing was found.
    """

    case: str
    fault: str | None
    nodes: int
    found: bool
    false_findings: int
    delay_seconds: float | None
    lead_seconds: float | None
    node_days: float
    right_gpu: bool | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A ratio with its 95 % interval; ``value`` is None where there is nothing to divide by."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Measure:
    """What a group of cases says about one method.

    ``true_positives`` + ``false_negatives`` = ``faults``. A wrong name after an onset is a false
    positive and, unless the right one came first, leaves the instance a false negative too.
    Delays are medians and the 90th percentile over the instances found, the lead is the median
    over those of them that halted. ``false_per_node_day_bound`` is the upper 95 % bound of the rate
    of false findings, if they come at random (Poisson). ``right_gpu`` is over the instances found
    of which it is known that single GPUs were at fault.
    """

    cases: int
    faults: int
    true_positives: int
    false_positives: int
    false_negatives: int
    precision: Share
    recall: Share
    f1: Share
    delay_median_seconds: float | None
    delay_p90_seconds: float | None
    lead_median_seconds: float | None
    node_days: float
    false_findings_per_node_day: float | None
    false_per_node_day_bound: float | None
    right_gpu: Share


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything measured of one method.

    ``by_fault`` has the healthy cases as a group of their own, named ``healthy``.
    """

    overall: Measure
    by_fault: Mapping[str, Measure]
    by_job_size: Mapping[str, Measure]
    verdicts: tuple[CaseEvaluation, ...]


def lacks_truth(result: CaseResult) -> str:
    """Return why a case cannot be evaluated, or an empty text."""
    truth, file = result.truth, result.folder / DESCRIPTION
    if truth is None:
        return (
            f"{file}: has no truth; write what was wrong into it, or null as its fault if nothing "
            "was, or use backtest."
        )
    if truth.fault is not None and (not truth.nodes or truth.onset_seconds is None):
        return f"{file}: truth has a fault {truth.fault!r} but no nodes or no onset_seconds."
    return ""


def evaluate_case(result: CaseResult, findings: Sequence[FindingLike]) -> CaseEvaluation:
    """Compare who was flagged in a case with its truth.

    Parameters
    ----------
    result
        The case; it has a truth.
    findings
        In the order they were raised.
    """
    truth = result.truth
    assert truth is not None
    onset = truth.onset_seconds
    if truth.fault is None or onset is None:
        onset = np.inf
    after = [finding for finding in findings if finding.raised >= onset]
    hit = after[0] if after and after[0].node in truth.nodes else None
    halt = truth.halt_seconds
    return CaseEvaluation(
        result.case,
        truth.fault,
        len(result.nodes),
        hit is not None,
        sum(finding.raised < onset or finding.node not in truth.nodes for finding in findings),
        None if hit is None else hit.raised - onset,
        None if hit is None or halt is None else halt - hit.raised,
        len(result.nodes) * result.seconds / _DAY,
        hit.gpu in truth.gpus if hit is not None and truth.gpus else None,
    )


def evaluate(
    results: Sequence[CaseResult], findings: Sequence[Sequence[FindingLike]]
) -> Evaluation:
    """Measure one method over labelled cases.

    Parameters
    ----------
    results
        Cases with a truth.
    findings
        Whom the method flagged in each of them.
    """
    verdicts = tuple(
        evaluate_case(result, flagged) for result, flagged in zip(results, findings, strict=True)
    )
    return summarize(verdicts)


def summarize(verdicts: Sequence[CaseEvaluation]) -> Evaluation:
    """Measure one method by how each case was evaluated."""
    return Evaluation(
        measure(verdicts),
        _grouped(verdicts, lambda verdict: verdict.fault or HEALTHY, sorted),
        _grouped(verdicts, lambda verdict: size_group(verdict.nodes), _by_first_number),
        tuple(verdicts),
    )


def measure(verdicts: Sequence[CaseEvaluation]) -> Measure:
    """Count and divide; intervals after Wilson, that of F1 by resampling cases."""
    found = np.array([verdict.found for verdict in verdicts], dtype=np.int64)
    false = np.array([verdict.false_findings for verdict in verdicts], dtype=np.int64)
    faulty = np.array([verdict.fault is not None for verdict in verdicts], dtype=np.int64)
    hits, wrong, faults = int(found.sum()), int(false.sum()), int(faulty.sum())
    delays = [verdict.delay_seconds for verdict in verdicts if verdict.delay_seconds is not None]
    leads = [verdict.lead_seconds for verdict in verdicts if verdict.lead_seconds is not None]
    node_days = sum(verdict.node_days for verdict in verdicts)
    gpus = [verdict.right_gpu for verdict in verdicts if verdict.right_gpu is not None]
    return Measure(
        len(verdicts),
        faults,
        hits,
        wrong,
        faults - hits,
        wilson(hits, hits + wrong),
        wilson(hits, faults),
        _f1(found, false, faulty),
        float(np.median(delays)) if delays else None,
        float(np.quantile(delays, 0.9)) if delays else None,
        float(np.median(leads)) if leads else None,
        node_days,
        wrong / node_days if node_days else None,
        poisson_bound(wrong) / node_days if node_days else None,
        wilson(sum(gpus), len(gpus)),
    )


def poisson_bound(count: int, confidence: float = 0.95) -> float:
    """Return the largest mean under which so few events are still likely enough (Garwood 1936).

    Parameters
    ----------
    count
        Events seen, 0 or more.
    confidence
        Of the one-sided bound: with 0 events 3.0 at 95 %, which is the rule of three.
    """
    low, high = float(count), 2.0 * count + 10.0
    # The chance of at most ``count`` events falls with the mean; 60 halvings are below rounding.
    for _ in range(60):
        mean = (low + high) / 2
        logs = [number * math.log(mean) - math.lgamma(number + 1) for number in range(count + 1)]
        chance = sum(math.exp(each - mean) for each in logs)
        low, high = (mean, high) if chance > 1 - confidence else (low, mean)
    return high


def wilson(hits: int, tries: int) -> Share:
    """Return a share with Wilson's score interval (Wilson 1927, JASA 22)."""
    if tries == 0:
        return Share(None, None, None)
    share, z2 = hits / tries, _Z**2
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z / (1 + z2 / tries) * np.sqrt(share * (1 - share) / tries + z2 / (4 * tries**2))
    return Share(share, float(max(0.0, middle - half)), float(min(1.0, middle + half)))


def guesses(results: Sequence[CaseResult], seed: int = 0) -> dict[str, list[list[Guess]]]:
    """Return two references that are told that and when something is wrong, and guess who.

    One always takes the job's first node, the other any node. A method that finds no more of the
    faults than these knows nothing about nodes.
    """
    random = np.random.default_rng(seed)
    first, anyone = [], []
    for result in results:
        truth = result.truth
        onset = truth.onset_seconds if truth and truth.fault else None
        drawn = result.nodes[int(random.integers(len(result.nodes)))]
        first.append([] if onset is None else [Guess(result.nodes[0], onset)])
        anyone.append([] if onset is None else [Guess(drawn, onset)])
    return {"first node": first, "random node": anyone}


def size_group(nodes: int) -> str:
    """Return the group of job sizes that a number of nodes belongs to."""
    low = 1
    for high in _SIZES:
        if nodes <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"


def _f1(found: NDArray[np.int64], false: NDArray[np.int64], faulty: NDArray[np.int64]) -> Share:
    counts = np.stack([found, false, faulty])
    if not counts[2].sum():
        return Share(None, None, None)
    # Findings of one case are not independent of one another, so whole cases are drawn.
    draws = np.random.default_rng(0).integers(0, counts.shape[1], (_RESAMPLES, counts.shape[1]))
    hits, wrong, faults = counts[:, draws].sum(axis=2)
    # 2 TP / (2 TP + FP + FN), and TP + FN = faults.
    below = hits + wrong + faults
    spread = 2 * hits[below > 0] / below[below > 0]
    hit, missed, fault = counts.sum(axis=1)
    low, high = np.quantile(spread, [0.025, 0.975])
    return Share(float(2 * hit / (hit + missed + fault)), float(low), float(high))


def _grouped(
    verdicts: Sequence[CaseEvaluation],
    group: Callable[[CaseEvaluation], str],
    order: Callable[[set[str]], list[str]],
) -> dict[str, Measure]:
    names = order({group(verdict) for verdict in verdicts})
    return {
        name: measure([verdict for verdict in verdicts if group(verdict) == name]) for name in names
    }


def _by_first_number(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: int(name.rstrip("+").split("-")[0]))
