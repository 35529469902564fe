"""One incident: a job, what was observed of it, and what is right to say about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces


@dataclass(frozen=True, slots=True)
class Answer:
    """What is right to say about an incident, by nodes.

    Parameters
    ----------
    domains, symptoms
        Any of these; ``any`` symptom where none is asked for.
    isolate
        The nodes to isolate, all of them.
    may_isolate
        Nodes that may be isolated too, of which at least one must be named.
    named
        Nodes that may be named, not isolated.
    tells_host, tells_domain
        Whether what says so was observed; else it is right not to decide.
    """

    domains: frozenset[str]
    symptoms: frozenset[str]
    isolate: frozenset[str]
    may_isolate: frozenset[str]
    named: frozenset[str]
    tells_host: bool = True
    tells_domain: bool = True


@dataclass(frozen=True, slots=True)
class Incident:
    """A job and what was observed of it.

    Parameters
    ----------
    name, mechanism, part
        Of the case, of what happened, and whether rules may be developed with it.
    job_id
        The job.
    job
        Who is who in it.
    seconds
        Length of the case; times of events are seconds from its start.
    onset_seconds
        When it began.
    events
        In order of time, as clocks of hosts have it.
    answer
        What is right.
    missing
        Sources that were not there, for a person.
    """

    name: str
    mechanism: str
    part: str
    job_id: str
    job: JobPlaces
    seconds: float
    onset_seconds: float
    events: tuple[Evidence, ...]
    answer: Answer
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return it as a ``case.json`` with events, and ``answer`` beside its truth."""
        ranks: dict[str, list[int]] = {}
        for rank, node in self.job.ranks.items():
            ranks.setdefault(node, []).append(rank)
        answer = self.answer
        return {
            "name": self.name,
            "job_id": self.job_id,
            "step_seconds": 1.0,
            "seconds": self.seconds,
            "nodes": list(self.job.nodes),
            "ranks": ranks,
            "places": {node: dict(places) for node, places in self.job.places.items()},
            "addresses": dict(self.job.addresses),
            "truth": {
                "fault": self.mechanism,
                "nodes": sorted(answer.isolate),
                "onset_seconds": self.onset_seconds,
                "halt_seconds": None,
            },
            "answer": {
                "part": self.part,
                "domain": sorted(answer.domains),
                "symptom": sorted(answer.symptoms),
                "isolate": sorted(answer.isolate),
                "may_isolate": sorted(answer.may_isolate),
                "named": sorted(answer.named),
                "tells_host": answer.tells_host,
                "tells_domain": answer.tells_domain,
                "missing": list(self.missing),
            },
            "events": [event.to_json() for event in self.events],
        }

    def write(self, folder: Path) -> None:
        """Write it as a case folder, which is made; it has no ``samples.npz``."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "case.json").write_text(json.dumps(self.to_json(), indent=1) + "\n")
