"""The present value of every series of a query: small responses, of which only labels matter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading.transport.body import read_all
from peerwatch_detector.reading.transport.connection import FORM, Connection
from peerwatch_detector.reading.transport.envelope import (
    Annotations,
    check_status,
    check_whole,
    common_form,
    data_of,
)

# The time of the first value: all have the same. Never the inside of a string: there quotes are
# escaped.
_TIME = re.compile(rb'"value":\[([0-9.]+),')
# Queries whose last answers are kept: a discovery asks two. Twice that, as one may change.
_KEPT = 4


@dataclass(frozen=True, slots=True)
class _Answer:
    """A vector without its time: as text, and taken apart."""

    text: bytes
    labels: list[dict[str, str]]
    values: NDArray[np.float64]
    annotations: Annotations

    def at(self, time: float) -> list[Series]:
        times = np.full(self.values.shape, time)
        return list(map(Series, self.labels, times, self.values))


class KnownAnswers:
    """The last answers to some queries: the next ones are most likely the same but for the time.

    To see that takes a tenth of taking an answer apart. For one thread.
    """

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}

    def get(self, query: str, text: bytes) -> tuple[list[Series], Annotations] | None:
        """Return what an answer says if only its time differs from that of the last one."""
        known, time = self._answers.get(query), _TIME.search(text)
        if known is None or time is None or _without(text, time[1]) != known.text:
            return None
        return known.at(float(time[1])), known.annotations

    def remember(
        self, query: str, text: bytes, series: list[Series], annotations: Annotations
    ) -> None:
        """Keep an answer, whose series nobody may change."""
        self._answers.pop(query, None)
        time = _TIME.search(text)
        if time is None or any(each.times[0] != float(time[1]) for each in series):
            return
        values = np.array([each.values for each in series])
        labels = [each.labels for each in series]
        self._answers[query] = _Answer(_without(text, time[1]), labels, values, annotations)
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]


def _without(text: bytes, time: bytes) -> bytes:
    return text.replace(b'"value":[' + time + b",", b'"value":[,')


def instant(
    connection: Connection,
    query: str,
    time: float | None,
    deadline: float,
    known: KnownAnswers | None = None,
) -> list[Series]:
    """Ask for a vector.

    Parameters
    ----------
    connection
        To the server.
    query
        PromQL.
    time
        Unix time at which it is evaluated, or None for now.
    deadline
        On the clock of ``time.monotonic``.
    known
        Earlier answers; their labels are those of the series that are returned.

    Returns
    -------
    list[Series]
        One sample each; a ``PartialAnswer`` if the server says that some are missing.

    Raises
    ------
    ReadError
        If the server cannot be reached or does not answer with a vector.
    """
    form = {"query": query, **common_form(connection.settings)}
    if time is not None:
        form["time"] = f"{time:.3f}"
    response = connection.post("api/v1/query", urlencode(form).encode(), FORM, deadline)
    check_status(response)
    text = read_all(response.body)
    found = None if known is None else known.get(query, text)
    if found is None:
        data, annotations = data_of(response.url, text, "vector")
        found = _series(response.url, data), annotations
        if known is not None:
            known.remember(query, text, *found)
    series, annotations = found
    check_whole(response.url, annotations, connection.settings)
    return PartialAnswer(series) if annotations.partial else series


def _series(url: str, data: dict[str, Any]) -> list[Series]:
    """Turn a vector into series of one sample; NaN and infinities included."""
    try:
        pairs = [item["value"] for item in data["result"]]
        times = np.array([[float(time)] for time, _ in pairs])
        values = np.array([[float(value)] for _, value in pairs])
        every = [item["metric"] for item in data["result"]]
        for labels in every:
            labels.pop("__name__", None)
        return list(map(Series, every, times, values))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReadError("malformed", f"{url}: a vector of unexpected form: {error!r}.") from error
