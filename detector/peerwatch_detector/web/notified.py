"""The picture of a finding that a notification links to, from the samples that are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.deviation import LARGE, Curve, deviation_svg
from peerwatch_detector.web.deviation_png import deviation_png
from peerwatch_detector.web.incident.curves import Stretch, held_curves

# How much is drawn before the finding began, and in all: five minutes as of an incident
# (incident/address.py), and the 900 s that detectors keep by default (``history_seconds``).
_BEFORE_SECONDS, _SHOWN_SECONDS = 300.0, 900.0
# A point each 5 s, and four units of a large picture.
_POINTS = 180


@dataclass(frozen=True, slots=True)
class NotifiedPicture:
    """What a picture shows; ``since`` is None where the finding is over."""

    curve: Curve
    since: float | None

    @property
    def svg(self) -> str:
        """The picture for browsers and mail programs."""
        flagged = self.since is not None
        return deviation_svg(self.curve, self.since, LARGE, alone=True, flagged=flagged)

    @property
    def png(self) -> bytes:
        """The same for receivers that show no SVG."""
        return deviation_png(self.curve, self.since, flagged=self.since is not None)


def notified_picture(detector: Detector, asked: Mapping[str, str]) -> NotifiedPicture | None:
    """Return the picture of a finding; None if its samples are gone.

    Parameters
    ----------
    detector
        Whose samples are drawn.
    asked
        ``job_id``, ``node``, ``gpu``, ``metric`` and ``method`` of the finding.
    """
    found = _finding(detector, asked)
    memory = detector.memories.get(asked["job_id"])
    metric = next((each for each in detector.metrics if each.name == asked["metric"]), None)
    nodes = next(
        (d.job.nodes for d in detector.snapshot.detections if d.job.job_id == asked["job_id"]), ()
    )
    if memory is None or metric is None or asked["node"] not in nodes:
        return None
    reader, newest = memory.reader, detector.clock()
    oldest = newest - reader.kept_seconds(metric.name)
    start = max(oldest, newest - _SHOWN_SECONDS)
    if found is not None and oldest < found.since:
        start = max(oldest, found.since - _BEFORE_SECONDS)
    end = min(newest, start + _SHOWN_SECONDS)
    drawn = Stretch(asked["job_id"], asked["node"], asked["gpu"], start, end, _POINTS)
    curve = next(iter(held_curves(reader, nodes, [metric], drawn)), None)
    if curve is None:
        return None
    return NotifiedPicture(curve, found.since if found is not None else None)


def _finding(detector: Detector, asked: Mapping[str, str]) -> Finding | None:
    """Return the finding that is asked for, if it stands."""
    wanted = tuple(asked[name] for name in ("job_id", "node", "gpu", "metric", "method"))
    return next(
        (
            each
            for detection in detector.snapshot.detections
            for each in detection.findings
            if (each.job_id, each.node, each.gpu, each.metric, each.method) == wanted
        ),
        None,
    )
