"""Watches Prometheus, the detector and the pager, and says what is new."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peerwatch_demo.stack.report import Event
from peerwatch_demo.stack.webhook import WebhookReceiver

_ALERT = "PeerwatchFaultyNode"

Fetch = Callable[[str], Any]


def fetch_json(url: str) -> Any:  # noqa: ANN401 - whatever the server says
    """Return the JSON behind a URL, or None if there is none to be had now.

    A server that does not answer within 2 s is asked again at the next poll.
    """
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
            return json.load(answer)
    except (OSError, ValueError):
        return None


class Watcher:
    """Turns what the servers say into events, each reported once.

    Parameters
    ----------
    prometheus, detector
        Base URLs.
    receiver
        The pager's stand-in.
    fetch, clock
        Reads a URL; gives Unix time.
    """

    def __init__(
        self,
        prometheus: str,
        detector: str,
        receiver: WebhookReceiver,
        *,
        fetch: Fetch = fetch_json,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.events: list[Event] = []
        self._prometheus = prometheus
        self._detector = detector
        self._receiver = receiver
        self._fetch = fetch
        self._clock = clock
        self._candidates: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, ...]] = set()
        self._pages = 0

    def poll(self) -> list[Event]:
        """Return what is new since the last poll, in the order of the path to the page."""
        now = self._clock()
        new = [*self._deviations(now), *self._alerts(now), *self._paged()]
        self.events += new
        return new

    def _deviations(self, now: float) -> Iterator[Event]:
        answer = self._fetch(f"{self._detector}/api/v1/jobs")
        if answer is None:
            return
        candidates = set()
        for job in answer["jobs"]:
            for candidate in job["candidates"]:
                candidates.add((candidate["node"], candidate["metric"]))
        for node, metric in sorted(candidates - self._candidates):
            yield Event("candidate", now, node, metric)
        self._candidates = candidates
        for job in answer["jobs"]:
            for finding in job["findings"]:
                yield from self._once(Event("finding", now, finding["node"], finding["metric"]))

    def _alerts(self, now: float) -> Iterator[Event]:
        answer = self._fetch(f"{self._prometheus}/api/v1/alerts")
        for alert in answer["data"]["alerts"] if answer else ():
            labels = alert["labels"]
            if labels["alertname"] == _ALERT and alert["state"] == "firing":
                node, metric = labels.get("node", ""), labels.get("metric", "")
                yield from self._once(Event("alert", now, node, metric))

    def _paged(self) -> Iterator[Event]:
        pages = self._receiver.pages()
        for page in pages[self._pages :]:
            metrics = dict.fromkeys(alert.labels.get("metric", "") for alert in page.firing())
            yield Event("page", page.arrived, ", ".join(page.nodes()), ", ".join(metrics))
        self._pages = len(pages)

    def _once(self, event: Event) -> Iterator[Event]:
        key = (event.kind, event.node, event.metric)
        if key not in self._seen:
            self._seen.add(key)
            yield event


def scraped(prometheus: str, job: str, fetch: Fetch = fetch_json) -> int:
    """Return how many targets of a scrape job answer now."""
    return _asked(prometheus, f'sum(up{{job="{job}"}})', fetch) or 0


def fewest_scraped(
    prometheus: str, job: str, seconds: float, fetch: Fetch = fetch_json
) -> int | None:
    """Return how few targets of a scrape job answered at some time within the last seconds."""
    return _asked(prometheus, f'min_over_time(sum(up{{job="{job}"}})[{seconds:.0f}s:1s])', fetch)


def _asked(prometheus: str, expression: str, fetch: Fetch) -> int | None:
    query = urllib.parse.urlencode({"query": expression})
    answer = fetch(f"{prometheus}/api/v1/query?{query}")
    result = answer["data"]["result"] if answer else []
    return int(float(result[0]["value"][1])) if result else None


def progress(log: Path) -> dict[str, float]:
    """Return the numbers of the last line that rank 0 printed; empty if there is none yet."""
    if not log.exists():
        return {}
    lines = [line for line in log.read_text(errors="replace").splitlines() if line[:5] == "step="]
    pairs = (word.partition("=") for word in lines[-1].split()) if lines else ()
    return {name: float(value) for name, _, value in pairs}
