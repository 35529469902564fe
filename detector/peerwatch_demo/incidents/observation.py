"""An observation with what only the simulator knows of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Observation:
    """Evidence, and what is true about it.

    Parameters
    ----------
    evidence
        What the diagnosis gets.
    true_time
        When it was, in seconds from the start of the case, whatever the host's clock says.
    tells
        Whether host or domain can be known from it.
    host
        Its host by its place in the job; None if it is about none.
    local
        The rank or GPU by its number on the host; None if it is about none.
    gone
        Whether nothing comes from the host any more.
    """

    evidence: Evidence
    true_time: float
    tells: frozenset[str]
    host: int | None
    local: int | None
    gone: bool = False

    def of(self, evidence: Evidence) -> Observation:
        """Return it with other evidence."""
        return replace(self, evidence=evidence)
