"""What a model learnt from labelled logs thinks of one job, and the contract of such a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ModelOpinion:
    """What a model thinks of the logs of one failed job.

    Parameters
    ----------
    retry
        How likely the same job, started again unchanged, would not fail again for this reason:
        0 to 1.
    confidence
        How sure it is, whichever way: 0 (as likely either way, or words that it never saw) to 1.
    stops_below
        Below this chance of ``retry`` a job is stopped: learnt with the model, so that few that are
        worth another attempt are.
    lines
        The lines of the log that counted most, as they were given; never empty.
    model
        Its name and version, such as ``tfidf-1``.

    Raises
    ------
    ValueError
        If a number is not within 0 to 1, or no line is named.
    """

    retry: float
    confidence: float
    stops_below: float
    lines: tuple[str, ...]
    model: str

    def __post_init__(self) -> None:
        for name in ("retry", "confidence", "stops_below"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name}: {value} is not within 0 to 1")
        if not self.lines:
            raise ValueError("lines: an opinion names at least one line of the log")


class RetryModel(Protocol):
    """Assesses logs; the same lines yield the same opinion, on every machine."""

    def assess(self, lines: Sequence[str]) -> ModelOpinion | None:
        """Return what the model thinks of a failed job; None: the lines say nothing to it.

        Parameters
        ----------
        lines
            Of one job, in the order of the log, without prefixes of launchers and runtimes: those
            with words of failure and some around them, at most some hundreds.
        """
