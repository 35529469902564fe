"""The present value of every series of a query: small responses, of which only labels matter."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import numpy as np

from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading.transport.body import read_all
from peerwatch_detector.reading.transport.connection import FORM, Connection
from peerwatch_detector.reading.transport.envelope import (
    check_status,
    check_whole,
    common_form,
    data_of,
)


def instant(
    connection: Connection, query: str, time: float | None, deadline: float
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
    data, annotations = data_of(response.url, read_all(response.body), "vector")
    check_whole(response.url, annotations, connection.settings)
    series = _series(response.url, data)
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
