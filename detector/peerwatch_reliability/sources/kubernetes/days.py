"""Reads facts day by day, and keeps those of days that are over."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.sources.kubernetes.facts import Facts, add_facts, add_states, add_times
from peerwatch_reliability.sources.kubernetes.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_reliability.records import Window
    from peerwatch_reliability.settings.config import KubernetesConfig
    from peerwatch_reliability.sources.prometheus.server import Series, Server

_DAY = 86_400.0
# Samples of a day that is over may still come, such as from an agent that had no connection.
# By default Prometheus takes none that is an hour old (half of a block of 2 h).
_LATE_SECONDS = 3600.0


class Read(NamedTuple):
    """What was read.

    Parameters
    ----------
    facts
        Of the whole window.
    days, unanswered
        How many days were asked for, and how many of them were not answered.
    error
        The first that was given in place of an answer.
    """

    facts: Facts
    days: int
    unanswered: int
    error: str


class DayReader:
    """Reads kube-state-metrics' series, each day that is over once.

    Parameters
    ----------
    server
        The Prometheus.
    config
        What is read of it.
    """

    def __init__(self, server: Server, config: KubernetesConfig) -> None:
        self._server = server
        self._config = config
        self._pods: dict[float, Facts] = {}
        self._nodes: dict[float, Facts] = {}

    def pods(self, window: Window) -> Read:
        """Return the facts about pods and jobs of the days of a window."""

        def queries(days: Queries) -> list[str]:
            return [days.facts(), days.starts(), days.ends()]

        def decode(answers: list[list[Series]]) -> Facts:
            facts = Facts()
            add_facts(facts, answers[0])
            add_times(facts, answers[1], answers[2])
            return facts

        return self._read(window, self._pods, queries, decode)

    def nodes(self, window: Window) -> Read:
        """Return the minutes of a window at which nodes were out."""

        def decode(answers: list[list[Series]]) -> Facts:
            facts = Facts()
            add_states(facts, answers[0])
            return facts

        return self._read(window, self._nodes, lambda days: [days.nodes()], decode)

    def _read(
        self,
        window: Window,
        known: dict[float, Facts],
        queries: Callable[[Queries], list[str]],
        decode: Callable[[list[list[Series]]], Facts],
    ) -> Read:
        first = math.floor(window.start / _DAY) * _DAY
        begins = [first + _DAY * n for n in range(math.ceil((window.end - first) / _DAY))]
        for old in [each for each in known if each < first]:
            del known[old]
        asked = [each for each in begins if each not in known]
        requests = []
        for begin in asked:
            end = min(begin + _DAY, window.end)
            days = Queries(self._config.selector, self._config.resources, end - begin)
            requests.append([(query, end) for query in queries(days)])
        answers = iter(self._server.at_all(each for day in requests for each in day))
        facts, errors, found = Facts(), [], dict(known)
        for begin, day in zip(asked, requests, strict=True):
            of_day = [next(answers) for _ in day]
            good = [each for each in of_day if not isinstance(each, SourceError)]
            if len(good) < len(of_day):
                errors.append(next(str(each) for each in of_day if isinstance(each, SourceError)))
                continue
            found[begin] = decode(good)
            if begin + _DAY + _LATE_SECONDS < window.end:
                known[begin] = found[begin]
        for begin in begins:
            if begin in found:
                facts.update(found[begin])
        return Read(facts, len(begins), len(errors), errors[0] if errors else "")
