"""Asking servers, and waiting until they answer what they should."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any


def fetch(url: str) -> str:
    """Return the text of an answer."""
    with urllib.request.urlopen(url, timeout=300) as answer:
        return answer.read().decode()


def query(server: str, expression: str, at: float | None = None) -> list[dict[str, Any]]:
    """Return what a Prometheus answers for a Unix time; None is now."""
    form = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
    return _ask(server, "query", form)


def query_range(server: str, expression: str, start: float, end: float) -> list[dict[str, Any]]:
    """Return what a Prometheus answers for every second of a time."""
    form = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": "1"}
    return _ask(server, "query_range", form)


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 300) -> Any:
    """Return what ``condition`` gives as soon as that is true.

    A detector that starts may have to compile first, on a machine that is busy with other tests.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.2)


def _ask(server: str, endpoint: str, form: dict[str, str]) -> list[dict[str, Any]]:
    body = urllib.parse.urlencode(form).encode()
    with urllib.request.urlopen(f"{server}/api/v1/{endpoint}", body, 60) as answer:
        return json.load(answer)["data"]["result"]
