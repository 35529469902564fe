"""The first process of a node: it starts the node's other processes inside the node's session.

One session per node gives every node its own share of the CPU (the kernel's autogroup
scheduling), so that whatever burns CPU on a node takes it from that node's rank first, and lets
a node die as a whole. Commands come as JSON lines on standard input, one answer each:

    {"start": "rank", "arguments": [...], "environment": {...}, "log": "..."}   -> {"pid": 4711}
    {"signal": "rank", "number": 19}                                            -> {"pid": 4711}
    {"end": "hog"}                                                              -> {"pid": 4711}
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from peerwatch_demo.stack.process import StackError, tied


class Agent:
    """Keeps the node's processes by name."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a command says and return the answer, ``error`` in it if it cannot be done."""
        try:
            if "start" in command:
                return {"pid": self._start(command)}
            if "end" in command:
                child = self._children[command["end"]]
                _end_all([child], seconds=3.0)
            else:
                child = self._children[command["signal"]]
                child.send_signal(int(command["number"]))
        except KeyError as error:
            return {"error": f"unknown process or missing key {error}"}
        except (OSError, StackError) as error:
            return {"error": str(error)}
        return {"pid": child.pid}

    def _start(self, command: dict[str, Any]) -> int:
        with Path(command["log"]).open("ab") as log:
            child = subprocess.Popen(
                tied(command["arguments"]),
                env=command["environment"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._children[command["start"]] = child
        return child.pid

    def stop(self, seconds: float = 3.0) -> None:
        """End all processes of the node: SIGTERM first, SIGKILL for those that do not listen."""
        _end_all(list(self._children.values()), seconds)


def _end_all(children: list[subprocess.Popen[bytes]], seconds: float) -> None:
    running = [child for child in children if child.poll() is None]
    for child in running:
        child.terminate()
        child.send_signal(signal.SIGCONT)
    for child in running:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def serve(agent: Agent, commands: IO[str], answers: IO[str]) -> None:
    """Answer commands until there are no more, then end the node's processes."""
    try:
        for line in commands:
            print(json.dumps(agent.answer(json.loads(line))), file=answers, flush=True)
    finally:
        agent.stop()


def _end(number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the second must not cut short the taking down
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    serve(Agent(), sys.stdin, sys.stdout)
