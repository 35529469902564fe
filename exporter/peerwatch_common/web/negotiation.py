"""What the client can take, from its headers: format, compression, and how long it waits."""

from __future__ import annotations

import re
from functools import lru_cache

# What a client that says nothing gets: half of Prometheus' own default, 10 s.
DEFAULT_TIMEOUT_SECONDS = 5.0
# Longer than this no exposition is waited for, whatever the client says: Prometheus' default
# interval, which no time-out of a scrape may exceed.
MAX_TIMEOUT_SECONDS = 60.0

_OPENMETRICS = "application/openmetrics-text"
_OPENMETRICS_VERSIONS = frozenset({"", "1.0.0", "0.0.1"})
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
# Chosen: every scraper says the same each time, and there are few of them.
_MOST_HEADERS = 16
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


@lru_cache(maxsize=_MOST_HEADERS)
def prefers_openmetrics(accept: str) -> bool:
    """Return whether OpenMetrics is named at least as high as the text format.

    A wildcard does not count: a browser that takes anything shall see text.
    """
    openmetrics = plain = 0.0
    for name, parameters, quality in _items(accept):
        if name == _OPENMETRICS and parameters.get("version", "") in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, quality)
        elif name == "text/plain":
            plain = max(plain, quality)
    return openmetrics > 0 and openmetrics >= plain


@lru_cache(maxsize=_MOST_HEADERS)
def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether the client can take gzip; one that sends no header cannot."""
    qualities = {name: quality for name, _, quality in _items(accept_encoding)}
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def scrape_timeout(header: str) -> float:
    """Return how long a scrape may take in seconds, by Prometheus' own header.

    A margin is kept back for the way and for the client's own parsing. What is no positive number
    of seconds is taken as if nothing had been sent.
    """
    seconds = float(header) if _SECONDS.fullmatch(header) else 0.0
    if seconds <= 0:
        return DEFAULT_TIMEOUT_SECONDS
    return min(seconds - min(0.5, seconds / 4), MAX_TIMEOUT_SECONDS)


def _items(header: str) -> list[tuple[str, dict[str, str], float]]:
    """Return name, parameters and quality of each item of an Accept-like header."""
    items = []
    for item in header.lower().split(","):
        name, *rest = (part.strip() for part in item.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip(): value.strip(' "') for key, _, value in pairs}
        quality = parameters.pop("q", "1")
        # A garbled quality is that of an item the client did not mean seriously: the lowest.
        value = float(quality) if _QUALITY.fullmatch(quality) else 0.0
        items.append((name, parameters, value))
    return items
