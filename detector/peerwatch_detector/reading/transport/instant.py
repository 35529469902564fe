"""The present value of every series of a query: small responses, of which only labels matter."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import numpy as np

from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.reading.transport.body import read_all
from peerwatch_detector.reading.transport.connection import FORM, Connection
from peerwatch_detector.reading.transport.envelope import check_status, data_of


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

    Raises
    ------
    ReadError
        If the server cannot be reached or does not answer with a vector.
    """
    form = {"query": query, "timeout": f"{connection.settings.timeout_seconds:g}s"}
    if time is not None:
        form["time"] = f"{time:.3f}"
    response = connection.post("api/v1/query", urlencode(form).encode(), FORM, deadline)
    check_status(response)
    data, _ = data_of(response.url, read_all(response.body), "vector")
    return _series(response.url, data)


def _series(url: str, data: dict[str, Any]) -> list[Series]:
    """Turn a vector into series of one sample; NaN and infinities included."""
    try:
        pairs = [item["value"] for item in data["result"]]
        table = np.array([(float(time), float(value)) for time, value in pairs]).reshape(-1, 2)
        times, values = table.T.copy()
        return [
            Series(
                {name: text for name, text in item["metric"].items() if name != "__name__"},
                times[place : place + 1],
                values[place : place + 1],
            )
            for place, item in enumerate(data["result"])
        ]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReadError("malformed", f"{url}: a vector of unexpected form: {error!r}.") from error
