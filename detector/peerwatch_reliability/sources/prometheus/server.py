"""Asks a Prometheus, or a server with its API; what it does not answer is unknown."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import requests

from peerwatch_common.logs import one_line
from peerwatch_common.promql import missing_parts
from peerwatch_common.web.client import ClientError, ask
from peerwatch_reliability.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_reliability.settings.config import PrometheusConfig

# Chosen: 200,000 series with long labels.
_MAX_BYTES = 128 * 1024**2
# Of an error that Prometheus answers: chosen, a sentence or two.
_SHOWN_CHARACTERS = 200


class Series(NamedTuple):
    """A series of an answer: its labels, and its samples as (Unix time, value)."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]


class Server:
    """A server, with a session for each thread that asks.

    Parameters
    ----------
    config
        Its settings.
    """

    def __init__(self, config: PrometheusConfig) -> None:
        self.config = config
        self._local = threading.local()

    def at(self, query: str, time: float) -> list[Series]:
        """Return what a query gives at a time.

        Raises
        ------
        SourceError
            If it is not answered.
        """
        return self._get("query", {"query": query, "time": f"{time:.3f}"})

    def over(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return what a query gives from a time to another.

        Raises
        ------
        SourceError
            If it is not answered.
        """
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._get("query_range", {"query": query, **times})

    def at_all(self, queries: Iterable[tuple[str, float]]) -> list[list[Series] | SourceError]:
        """Return the answers to many queries, in their order; an error in place of an answer."""

        def ask(query: tuple[str, float]) -> list[Series] | SourceError:
            try:
                return self.at(*query)
            except SourceError as error:
                return error

        with ThreadPoolExecutor(self.config.connections) as pool:
            return list(pool.map(ask, queries))

    def _get(self, path: str, parameters: Mapping[str, str]) -> list[Series]:
        config = self.config
        try:
            # Posted: a query with many nodes is longer than an address may be.
            status, content = ask(
                self._session().post,
                config,
                f"/api/v1/{path}",
                config.timeout_seconds,
                _MAX_BYTES,
                data=dict(parameters),
            )
        except ClientError as error:
            raise SourceError(str(error)) from error
        try:
            answer = json.loads(content)
            if status != 200:
                text = one_line(str(answer.get("error", "")))[:_SHOWN_CHARACTERS]
                raise SourceError(f"{config.url}: answers {status}: {text}")
            series = [_series(each) for each in answer["data"]["result"]]
            missing = _missing(answer)
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise SourceError(f"{config.url}: answers {status}, and nothing of a query") from None
        if missing:
            raise SourceError(f"{config.url}: answers in part: {missing}")
        return [each for each in series if each.samples]

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            # The settings say how it is reached, and no file of the user.
            session.trust_env = False
        return session


def _missing(answer: Mapping[str, Any]) -> str:
    """Return why an answer is partial, as Thanos and VictoriaMetrics say it; empty: it is whole."""
    missing = missing_parts(map(str, answer.get("warnings") or ()))
    if not missing:
        return "isPartial" if answer.get("isPartial") is True else ""
    return one_line(missing[0])[:_SHOWN_CHARACTERS]


def _series(answer: Mapping[str, Any]) -> Series:
    """Return a series of an answer, without samples that are no numbers."""
    labels = {str(name): str(value) for name, value in answer["metric"].items()}
    # A query of a range, such as x[1h], gives all samples in it.
    values = answer["values"] if "values" in answer else [answer["value"]]
    samples = [(float(time), float(value)) for time, value in values]
    return Series(labels, [each for each in samples if all(map(math.isfinite, each))])
