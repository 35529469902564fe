"""Endpoints of made-up nodes and detectors that follow a script, for the rules to be played on.

Their time runs ``speed`` times as fast as that on the wall, like the rules' own durations.
"""

from __future__ import annotations

import copy
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from alertmanager_live import seconds
from peerwatch_demo.stack.local_server import LocalServer
from yaml_files import read_yaml

_WINDOW = re.compile(r"(\[|\boffset )(\d+(?:ms|[smh]))\b")
# Ages that a recorded time is compared with.
_AGE = re.compile(r"(?<=time\(\) - )(\d+)\b")


@dataclass(frozen=True)
class Sample:
    """One line of an exposition."""

    name: str
    value: float
    labels: Mapping[str, str]

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.name}{{{labels}}} {self.value!r}\n"


# What is exposed after so many seconds of the script, or None while its process is not there.
Script = Callable[[float], Iterator[Sample] | None]


def faster(rules: Path, speed: float) -> dict[str, Any]:
    """Return a rule file in which all durations are ``speed`` times shorter."""

    def shorter(duration: str) -> str:
        return f"{round(seconds(duration) / speed * 1000)}ms"

    def within(text: str) -> str:
        text = _AGE.sub(lambda found: f"{int(found[1]) / speed:.1f}", text)
        return _WINDOW.sub(lambda found: found[1] + shorter(found[2]), text)

    content: dict[str, Any] = copy.deepcopy(read_yaml(rules))
    for group in content["groups"]:
        group["interval"] = shorter(group["interval"])
        for rule in group["rules"]:
            rule["expr"] = within(rule["expr"])
            for key in {"for", "keep_firing_for"} & rule.keys():
                rule[key] = shorter(rule[key])
            for name, text in rule.get("annotations", {}).items():
                rule["annotations"][name] = within(text)
    return content


class ScriptedExpositions(LocalServer):
    """An HTTP server with an exposition for each script, by name, at ``/NAME/metrics``.

    Parameters
    ----------
    scripts
        What each serves; their clock starts with ``begin``.
    speed
        Seconds of a script in a second.
    """

    def __init__(self, scripts: Mapping[str, Script], speed: float) -> None:
        self.speed = speed
        self._began: float | None = None
        self._asked: dict[str, float] = {}
        self._gaps: dict[str, float] = {}
        self._lock = threading.Lock()
        expositions = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                name = self.path.split("/")[1]
                expositions._note(name)
                samples = scripts[name](expositions.seconds)
                body = "" if samples is None else "".join(map(str, samples))
                self.send_response(503 if samples is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)

    def begin(self) -> None:
        """Start the scripts' clock, which stands at 0 until then."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How far the scripts are."""
        if self._began is None:
            return 0.0
        return (time.monotonic() - self._began) * self.speed

    def longest_gap(self, name: str) -> float:
        """Return the longest time between two scrapes of a script since the begin, in seconds."""
        self._note(name)
        with self._lock:
            return self._gaps[name]

    def _note(self, name: str) -> None:
        now = time.monotonic()
        with self._lock:
            if self._began is not None:
                gap = now - max(self._began, self._asked.get(name, 0.0))
                self._gaps[name] = max(gap, self._gaps.get(name, 0.0))
            self._asked[name] = now

    def wait_until(self, second: float) -> None:
        """Return at a second of the scripts."""
        time.sleep(max(0.0, second - self.seconds) / self.speed)
