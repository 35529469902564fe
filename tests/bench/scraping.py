"""Scrapes as Prometheus does: a connection that is kept, OpenMetrics, gzip, at a fixed interval."""

from __future__ import annotations

import gzip
import http.client
import threading
import time
from dataclasses import dataclass, field

HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "1",
}


@dataclass(slots=True)
class Scraper:
    """One target's exposition, scraped once a second.

    Parameters
    ----------
    port, path
        Where it is.

    Attributes
    ----------
    seconds
        How long each answer took.
    exposition
        The last one, unpacked.
    wire_bytes
        Its size as it came.
    """

    port: int
    path: str = "/metrics"
    seconds: list[float] = field(default_factory=list)
    exposition: bytes = b""
    wire_bytes: int = 0
    _connection: http.client.HTTPConnection | None = None

    def scrape(self) -> None:
        """Scrape once."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        start = time.perf_counter()
        self._connection.request("GET", self.path, headers=HEADERS)
        answer = self._connection.getresponse()
        body = answer.read()
        self.seconds.append(time.perf_counter() - start)
        if answer.status != 200:
            raise RuntimeError(f"{self.path} on port {self.port} answered {answer.status}.")
        self.wire_bytes = len(body)
        packed = answer.headers.get("Content-Encoding") == "gzip"
        self.exposition = gzip.decompress(body) if packed else body

    def run(self, seconds: int, interval: float = 1.0) -> None:
        """Scrape at a fixed interval for so long."""
        start = time.monotonic()
        for number in range(int(seconds / interval)):
            time.sleep(max(0.0, start + number * interval - time.monotonic()))
            self.scrape()
        time.sleep(max(0.0, start + seconds - time.monotonic()))

    @property
    def series(self) -> int:
        """Samples of the last exposition."""
        return sum(not line.startswith(b"#") for line in self.exposition.splitlines() if line)

    def percentile(self, share: float) -> float:
        """Return how long that share of the answers took at most, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def scrape_together(scrapers: list[Scraper], seconds: int) -> None:
    """Scrape all of them at the same interval, each in a thread of its own."""
    threads = [threading.Thread(target=scraper.run, args=(seconds,)) for scraper in scrapers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
