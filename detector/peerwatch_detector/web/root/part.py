"""The part of a job's view that says what to do first, and what came first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import flask
from markupsafe import Markup

from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.kept import Kept
from peerwatch_detector.web.root import diagram
from peerwatch_detector.web.root.sources import KEPT_SECONDS, SourcesView, read_sources
from peerwatch_detector.web.root.view import RootView, RootViews


@dataclass(frozen=True, slots=True)
class State:
    """Why no diagnosis is shown; ``level`` is a class of the style sheet."""

    text: str
    level: str


@dataclass(frozen=True, slots=True)
class RootPart:
    """What the template writes; ``view`` is None while nothing was asked."""

    view: RootView | None
    state: State
    sources: SourcesView
    asked: str
    picture: Markup | None


class RootParts:
    """Makes the part for each job.

    Parameters
    ----------
    detector
        What it knows is shown; which sources a job has is read when somebody looks.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._views = RootViews()
        self._sources = None
        if detector.instants is not None:
            self._sources = Kept(partial(read_sources, detector.instants), KEPT_SECONDS)

    def summaries(self, job_id: str) -> tuple[str, ...]:
        """Return what to do first about a job, a sentence for each diagnosis."""
        view = self._view(job_id)
        return () if view is None else tuple(cause.summary for cause in view.causes)

    def get(self, job_id: str) -> RootPart:
        """Return the part about a job."""
        view = self._view(job_id)
        ago = 0 if view is None else max(0, round(self._detector.clock() - view.asked))
        return RootPart(
            view, self._state(job_id, view), self._present(job_id), f"{ago} s ago", _picture(view)
        )

    def _view(self, job_id: str) -> RootView | None:
        diagnoses = self._detector.snapshot.diagnoses
        if diagnoses is None:
            return None
        return self._views.get(diagnoses.roots.get(job_id), self._named(job_id))

    def _named(self, job_id: str) -> frozenset[str]:
        """Return the nodes that the view names for other reasons than the root."""
        snapshot = self._detector.snapshot
        verdicts = () if snapshot.diagnoses is None else snapshot.diagnoses.verdicts
        return frozenset(
            verdict.node
            for verdict in verdicts
            if verdict.job_id == job_id and verdict.names_node and not verdict.is_root
        ) | frozenset(
            finding.node
            for detection in snapshot.detections
            if detection.job.job_id == job_id
            for finding in detection.findings
        )

    def _present(self, job_id: str) -> SourcesView:
        # While Prometheus does not answer, nobody shall wait for it to see what is known.
        if self._sources is None or not self._detector.snapshot.reading.up:
            return SourcesView()
        return self._sources.get(job_id)

    def _state(self, job_id: str, view: RootView | None) -> State:
        snapshot = self._detector.snapshot
        if snapshot.diagnoses is None or self._detector.roots is None:
            return State("Not diagnosed: diagnosis.enabled is false.", "note")
        stands = any(verdict.job_id == job_id for verdict in snapshot.diagnoses.verdicts)
        stands |= any(each.findings for each in snapshot.detections if each.job.job_id == job_id)
        if view is None and stands:
            seconds = self._detector.config.diagnosis.root_interval_seconds
            return State(f"Not known yet: it is asked every {seconds:g} s.", "warn")
        if view is not None and view.no_cause:
            return State(view.no_cause, "warn")
        if stands:
            return State(
                "The job goes on, as far as it was observed: see what stands against it below.",
                "warn",
            )
        if view is None:
            return State("Nothing to do: nothing stands against this job.", "good")
        return State("Nothing is wrong with the job, as far as it was observed.", "good")


def _picture(view: RootView | None) -> Markup | None:
    if view is None or view.diagram is None:
        return None
    return Markup(  # noqa: S704 - the template escapes
        flask.render_template(
            "timeline.svg",
            diagram=view.diagram,
            width=diagram.WIDTH,
            left=diagram.LEFT,
            right=diagram.RIGHT,
        )
    )
