"""What reading cost so far; published as metrics."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from peerwatch_detector.errors import ReadFailure
from peerwatch_detector.reading.settings import Api

# The server works, and does not do what was asked.
REFUSALS: frozenset[ReadFailure] = frozenset({"refused", "http_4xx"})


@dataclass(slots=True)
class ReadingStatistics:
    """Counts since the start, and how it stands now.

    Parameters
    ----------
    samples, received_bytes
        What came.
    requests, splits
        Requests about ranges, and how often one was cut in half.
    partial
        Responses that lack something, by the server's own words.
    seconds
        Time that answers took by the API they were read, waiting for the server included; those
        of several connections add up.
    errors
        Failed requests by reason.
    up
        Whether the last request was answered.
    api
        How long ranges are read; None until the server was asked what it can do.
    deferred
        Requests that were not sent since the server asks to be asked less.
    wait_seconds
        How long the server is left alone yet.
    """

    samples: int = 0
    received_bytes: int = 0
    requests: int = 0
    splits: int = 0
    partial: int = 0
    seconds: dict[Api, float] = field(default_factory=dict)
    errors: dict[ReadFailure, int] = field(default_factory=dict)
    up: bool = False
    api: Api | None = None
    deferred: int = 0
    wait_seconds: float = 0.0

    def failed(self, error: ReadFailure) -> None:
        """Count a failed request; one that is refused says nothing about the others.

        A server that lets nobody in refuses all of them: what is asked of every server tells.
        """
        if error not in REFUSALS:
            self.up = False
        self.errors[error] = self.errors.get(error, 0) + 1

    def snapshot(self) -> ReadingStatistics:
        """Return a copy that does not change."""
        return copy.deepcopy(self)
