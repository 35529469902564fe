"""What the diagnosis of the same incident says, and what follows for a retry."""

from __future__ import annotations

from dataclasses import dataclass

from peerwatch_responder.retry.answer import Kind

# What the root diagnosis advises: take the node out, or do so and replace a part.
_TAKES_OUT = {"isolate", "replace", "drain"}
# Editorial: as faults of hardware and of storage in advice.yaml.
_CONFIDENCE = {"sure": 0.95, "likely": 0.8}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The root of a job's failure, as the detector has published it.

    Parameters
    ----------
    class_name, domain, confidence, action
        As the labels of ``peerwatch_diagnosis``.
    nodes
        Those that it names.
    """

    class_name: str
    domain: str
    confidence: str
    action: str
    nodes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The same as a sentence."""
        where = f" on {', '.join(self.nodes)}" if self.nodes else ""
        return (
            f"the diagnosis of this incident ({self.confidence}): {self.class_name}{where}, "
            f"{self.domain}; {self.action}"
        )


def follows(diagnosis: Diagnosis, *, has_line: bool) -> tuple[Kind, float] | None:
    """Return what follows for a retry, and how sure; None: nothing.

    Parameters
    ----------
    diagnosis
        Of the same incident.
    has_line
        Whether the log has a line to quote, without which nothing is stopped.
    """
    confidence = _CONFIDENCE.get(diagnosis.confidence)
    if confidence is None:
        return None
    if diagnosis.action in _TAKES_OUT and diagnosis.nodes:
        return "retry_elsewhere", confidence
    if diagnosis.domain == "user":
        return ("do_not_retry" if has_line else "ask_user"), confidence
    if diagnosis.action == "restart":
        return "retry", confidence
    if diagnosis.action == "ask":
        return "ask_user", confidence
    return None
