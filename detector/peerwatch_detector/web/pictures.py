"""The pictures of nodes against their peers, drawn once for all visitors."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from markupsafe import Markup

from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web import deviation
from peerwatch_detector.web.incident.curves import Stretch, held_curves

# How much of the past a picture shows, and how much of it lies before a finding's begin. Chosen: as
# long as a deviation must last to be a finding (240 s) before it, and more after it.
_PICTURE_SECONDS, _BEFORE_SECONDS = 600, 240
# A point each 5 s, as in notifications.
_POINTS = 120
# Of all pictures that are kept for the next visitor; one has some ten thousand. Chosen: 2,000 of
# them, in less than a tenth of the 223 MiB that a detector takes (docs/scaling.md).
_KEPT_BYTES = 20_000_000


class Pictures:
    """What was drawn of the last detections, once for all visitors.

    A job's view is loaded again every few seconds by everybody who has it open, which must not keep
    Prometheus from its answer.

    Parameters
    ----------
    detector
        Whose samples are drawn.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._drawn: dict[Hashable, Markup | None] = {}
        self._size = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """How many pictures are kept."""
        return len(self._drawn)

    def get(
        self, detection: Detection, metric: str, node: str, finding: Finding | None
    ) -> Markup | None:
        """Return the picture of a node's metric, None if nothing is held of it."""
        key = (detection.job.job_id, detection.time, metric, node, finding)
        # Locked all the while: who comes second waits for the picture instead of drawing it too.
        with self._lock:
            if key not in self._drawn:
                drawn = self._drawn[key] = _draw(self._detector, detection, metric, node, finding)
                self._size += _size(drawn)
                while self._size > _KEPT_BYTES:
                    self._size -= _size(self._drawn.pop(next(iter(self._drawn))))
            else:
                drawn = self._drawn[key]
            return drawn


def _size(drawn: Markup | None) -> int:
    """Return about how many bytes a picture takes with its key."""
    return 1000 + len(drawn or "")


def _draw(
    detector: Detector, detection: Detection, metric: str, node: str, finding: Finding | None
) -> Markup | None:
    memory = detector.memories.get(detection.job.job_id)
    held = memory.reader if memory else None
    job = detection.job
    if held is None or node not in job.nodes:
        return None
    start, end = _shown_range(finding, int(detection.time), int(held.kept_seconds(metric)))
    gpu = finding.gpu if finding is not None else ""
    asked = Stretch(job.job_id, node, gpu, start, end, _POINTS)
    chosen = [each for each in detector.metrics if each.name == metric]
    curve = next(iter(held_curves(held, job.nodes, chosen, asked)), None)
    if curve is None:
        return None
    flagged = any(each.node == node for each in detection.findings)
    since = finding.since if finding is not None else None
    drawn = deviation.deviation_svg(curve, since, deviation.LARGE, flagged=flagged)
    return Markup(drawn)  # noqa: S704 - escaped there


def _shown_range(finding: Finding | None, newest: int, kept: int) -> tuple[int, int]:
    """Return the seconds to draw: around a finding's begin while they are kept, else the last."""
    oldest = newest - kept + 1
    if finding is None or not oldest < finding.since - 1 < newest:
        return newest - _PICTURE_SECONDS, newest
    start = max(oldest, int(finding.since) - _BEFORE_SECONDS)
    return start, min(newest, start + _PICTURE_SECONDS)
