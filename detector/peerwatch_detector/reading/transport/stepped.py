"""The values of every series of a query at regular times: what one picture shows."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import numpy as np

from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.reading.transport.body import read_all
from peerwatch_detector.reading.transport.connection import FORM, Connection
from peerwatch_detector.reading.transport.envelope import (
    check_status,
    check_whole,
    common_form,
    data_of,
)


def stepped(
    connection: Connection, query: str, span: tuple[float, float, float], deadline: float
) -> list[Series]:
    """Ask for a matrix.

    Parameters
    ----------
    connection
        To the server.
    query
        PromQL.
    span
        First and last Unix time, and seconds between two values.
    deadline
        On the clock of ``time.monotonic``.

    Raises
    ------
    ReadError
        If the server cannot be reached or does not answer with a matrix.
    """
    start, end, step = span
    form = {
        "query": query,
        "start": f"{start:.3f}",
        "end": f"{end:.3f}",
        "step": f"{step:.3f}",
        **common_form(connection.settings),
    }
    response = connection.post("api/v1/query_range", urlencode(form).encode(), FORM, deadline)
    check_status(response)
    data, annotations = data_of(response.url, read_all(response.body), "matrix")
    check_whole(response.url, annotations, connection.settings)
    return _series(response.url, data)


def _series(url: str, data: dict[str, Any]) -> list[Series]:
    try:
        found = []
        for item in data["result"]:
            table = np.array([(float(time), float(value)) for time, value in item["values"]])
            times, values = table.reshape(-1, 2).T.copy()
            labels = {name: text for name, text in item["metric"].items() if name != "__name__"}
            found.append(Series(labels, times, values))
        return found
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReadError("malformed", f"{url}: a matrix of unexpected form: {error!r}.") from error
