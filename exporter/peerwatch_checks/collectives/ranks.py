"""The ranks of a collective that run on this node: starts one a device, hears them, ends them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a user sets for jobs would change what is tested: networks, algorithms, debug output.
_NOT_INHERITED = ("NCCL_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "TORCH_NCCL_", "GLOO_")
# Of the last line of a rank that failed: chosen, a sentence or two.
_MOST_TEXT = 300
# Chosen: short against the seconds that ranks take to start.
_POLL_SECONDS = 0.05
# Where a rank has failed the others wait for it in vain; over gloo they say so within this.
_AFTER_FAILURE_SECONDS = 5.0
# Chosen: longer than processes that were killed take to go, unless they hang in the kernel.
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it.

    Parameters
    ----------
    bandwidth
        Bus bandwidth in GB/s by collective: the least over the ranks of this node.
    wrong
        Collectives whose result was wrong, with the places of the devices that saw it.
    failure
        Why there is no result; empty if there is one.
    silent
        Places of the devices of this node whose rank did not answer, where there is none: of the
        one that failed first, or of all if none failed by itself.
    """

    bandwidth: Mapping[str, float]
    wrong: Mapping[str, tuple[int, ...]]
    failure: str = ""
    silent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A process group that several nodes have ranks in.

    Parameters
    ----------
    init_method
        Where the ranks meet: ``tcp://HOST:PORT``; the first one listens there.
    first
        The rank of this node's first device; the others follow.
    ranks
        Of all nodes.
    """

    init_method: str
    first: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Answers:
    """What the ranks of this node said.

    Parameters
    ----------
    ranks
        The JSON object of each rank; empty where one did not answer.
    failure
        Why there are none; empty if there are.
    silent
        Places of the devices whose rank did not answer: of the one that failed first, or of all if
        none failed by itself.
    """

    ranks: tuple[Mapping[str, Any], ...]
    failure: str = ""
    silent: tuple[int, ...] = ()


def measure(
    devices: Sequence[str],
    backend: str,
    *,
    size: int,
    repeats: int,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    group: Group | None = None,
    least: bool = False,
) -> Measured:
    """Run collectives with one process per device of this node.

    Parameters
    ----------
    devices
        As torch names them; the CPU may stand there several times.
    backend
        ``nccl`` or ``gloo``.
    size
        Bytes of each rank's buffer.
    repeats
        How often each collective is timed.
    seconds
        Until then all must have answered; those that have not are killed.
    environment
        What is set besides, such as ``NCCL_P2P_DISABLE``.
    group
        Where the group has ranks on other nodes too; None: these are all.
    least
        Whether the best of the runs counts rather than their median.

    Returns
    -------
    Measured
        As the ranks of this node saw it.
    """
    task = {
        "task": "bandwidth",
        "backend": backend,
        "size": size,
        "repeats": repeats,
        "least": least,
    }
    found = ask(devices, task, seconds=seconds, environment=environment, group=group)
    if found.failure:
        return Measured({}, {}, found.failure, found.silent)
    return _joined(found.ranks)


def ask(
    devices: Sequence[str],
    task: Mapping[str, object],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    group: Group | None = None,
) -> Answers:
    """Start one process per device of this node, and return what each of them answers.

    Parameters
    ----------
    devices, seconds, environment, group
        As for ``measure``.
    task
        What they are to do: ``task``, ``backend``, and what the task takes.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
    kept |= environment or {}
    with tempfile.TemporaryDirectory() as folder:
        if group is None:
            # The store is a file: no port that somebody else could take.
            group = Group(f"file://{folder}/store", 0, len(devices))
            kept |= {"GLOO_SOCKET_IFNAME": "lo"}
        common = {
            **task,
            "init_method": group.init_method,
            "ranks": group.ranks,
            "seconds": seconds,
        }
        deadline = time.monotonic() + seconds
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for place, device in enumerate(devices):
                rank = {**common, "rank": group.first + place, "device": device}
                ranks.append(_start(rank, kept, Path(folder)))
            failed = _wait(ranks, deadline)
        finally:
            _end(ranks)
        numbers = range(group.first, group.first + len(ranks))
        answers = [
            _answer(rank, _output(Path(folder), number))
            for rank, number in zip(ranks, numbers, strict=True)
        ]
        if None in answers:
            silent = [place for place, answer in enumerate(answers) if answer is None]
            return _failed(failed, silent, Path(folder), group.first, seconds)
    return Answers(tuple(answer for answer in answers if answer is not None))


def _start(
    task: Mapping[str, object], environment: Mapping[str, str], folder: Path
) -> subprocess.Popen[bytes]:
    number = task["rank"]
    # Files, which never keep a rank waiting for somebody to read.
    with _output(folder, number).open("wb") as output, _errors(folder, number).open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "peerwatch_checks.collectives", json.dumps(task)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )


def _output(folder: Path, number: object) -> Path:
    return folder / f"output-{number}"


def _errors(folder: Path, number: object) -> Path:
    return folder / f"errors-{number}"


def _wait(ranks: Sequence[subprocess.Popen[bytes]], deadline: float) -> list[int]:
    """Wait for ranks to end, until a deadline or until one fails and the others had their time.

    Returns
    -------
    list of int
        Places of those that failed, in the order in which they did.
    """
    failed: list[int] = []
    while True:
        now, statuses = time.monotonic(), [rank.poll() for rank in ranks]
        new = [place for place, status in enumerate(statuses) if status and place not in failed]
        if new and not failed:
            deadline = min(deadline, now + _AFTER_FAILURE_SECONDS)
        failed += new
        if now >= deadline or None not in statuses:
            return failed
        time.sleep(_POLL_SECONDS)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
    until = time.monotonic() + _END_SECONDS
    for rank in ranks:
        # One that hangs in the kernel stays: which rank it is matters more than its end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.wait(max(0.0, until - time.monotonic()))


def _answer(rank: subprocess.Popen[bytes], output: Path) -> dict[str, Any] | None:
    lines = output.read_text(errors="replace").splitlines() if rank.returncode == 0 else []
    # What libraries print comes before.
    answer: dict[str, Any] | None = json.loads(lines[-1]) if lines else None
    return answer


def _failed(
    failed: Sequence[int], silent: Sequence[int], folder: Path, first: int, seconds: float
) -> Answers:
    """Return why there are no answers, by the first of the ranks that says so."""
    blamed = tuple(failed[:1] or silent)
    for place in failed or silent:
        number = first + place
        lines = _errors(folder, number).read_text(errors="replace").split("\n")
        text = [line.strip() for line in lines if line.strip()]
        if text:
            return Answers((), f"rank {number}: {text[-1][:_MOST_TEXT]}", blamed)
    if failed:
        return Answers((), f"rank {first + failed[0]} ended and said nothing", blamed)
    return Answers((), f"no answer in {seconds:.0f} s", blamed)


def _joined(answers: Sequence[Mapping[str, Any]]) -> Measured:
    names = list(answers[0])
    wrong = {
        name: tuple(rank for rank, answer in enumerate(answers) if not answer[name]["right"])
        for name in names
    }
    return Measured(
        {name: min(answer[name]["bandwidth"] for answer in answers) for name in names},
        {name: ranks for name, ranks in wrong.items() if ranks},
    )
