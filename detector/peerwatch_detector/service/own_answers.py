"""What the detector says of a job, as Prometheus would give it back after the next scrape.

A root that waited until the detector's own series have been scraped would come after the page
about the very finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from peerwatch_detector.detection.findings import EVIDENCE
from peerwatch_detector.diagnosis.verdict import CLASS_NAMES, Verdict
from peerwatch_detector.frame import Series
from peerwatch_detector.service.job_memory import JobMemory

# Lines of logs are evidence themselves, and the level of traffic is asked of its past.
_NOT_EVIDENCE = ("traffic_", "fatal_line")

Row = tuple[dict[str, str], float]


def own_answers(memory: JobMemory, now: float) -> Mapping[str, Sequence[Series]]:
    """Return answers to those queries of the root that ask for what this detector publishes.

    Parameters
    ----------
    memory
        What is held of the job. Until its findings are restored, Prometheus knows more.
    now
        Unix time.

    Returns
    -------
    Mapping[str, Sequence[Series]]
        By the names of ``QUERIES``; what is not in it is to be asked.
    """
    if not memory.restored:
        return {}
    findings = () if memory.detection is None else memory.detection.findings
    told = {} if memory.detection is None else memory.detection.explanations
    of_statistics = [each for each in findings if each.method != EVIDENCE]
    labels = [{"node": f.node, "gpu": f.gpu, "metric": f.metric} for f in of_statistics]
    sentences = [told[f].sentence if f in told else "" for f in of_statistics]
    rows: Mapping[str, Iterable[Row]] = {
        "verdict": [(_of(each), now) for each in memory.evidence.verdicts if _is_evidence(each)],
        "named": [
            ({"node": each.node, "metric": each.metric}, each.since)
            for each in memory.evidence.findings.standing.values()
        ],
        "finding": [(own, each.since) for own, each in zip(labels, of_statistics, strict=True)],
        "finding_text": [
            ({**own, "summary": text}, 1.0)
            for own, text in zip(labels, sentences, strict=True)
            if text
        ],
    }
    return {
        name: [Series(own, np.array([now]), np.array([value])) for own, value in each]
        for name, each in rows.items()
    }


def _is_evidence(verdict: Verdict) -> bool:
    name = verdict.class_name
    return bool(verdict.node) and name in CLASS_NAMES and not name.startswith(_NOT_EVIDENCE)


def _of(verdict: Verdict) -> dict[str, str]:
    return {
        "node": verdict.node,
        "rank": "" if verdict.rank is None else str(verdict.rank),
        "class": verdict.class_name,
        "confidence": verdict.confidence,
    }
