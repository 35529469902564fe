"""A command of somebody else's: its end is seen whatever it leaves behind."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest

from peerwatch_responder.child_process import run_child

# It leaves the session, and holds standard output for as long as it lives.
LEAVES = "setsid sleep 600 & echo $! >{path}; echo written;"


@contextmanager
def left_behind(path):
    try:
        yield LEAVES.format(path=path)
    finally:
        os.kill(int(path.read_text()), signal.SIGKILL)


def test_what_it_writes_and_how_it_ends():
    ended = run_child(["sh", "-c", "cat; echo wrong >&2; exit 3"], 300, given=b"given")

    assert (3, b"given", b"wrong\n") == ended


def test_what_it_leaves_behind_does_not_hide_how_it_ended(tmp_path):
    with left_behind(tmp_path / "pid") as leaves:
        ended = run_child(["sh", "-c", f"{leaves} exit 2"], 5)

    assert (2, b"written\n", b"") == ended


def test_one_that_hangs_is_given_up_though_something_holds_its_output(tmp_path):
    with left_behind(tmp_path / "pid") as leaves:
        ended = run_child(["sh", "-c", f"{leaves} sleep 600"], 5)

    assert ended.status is None


def test_one_that_is_asked_first_may_tidy_up(tmp_path):
    path = tmp_path / "tidied"
    script = f"trap 'echo >{path}; exit' TERM; while :; do sleep 0.1; done"

    assert run_child(["sh", "-c", script], 5, asks_first=True).status is None
    assert path.exists()


def test_one_that_cannot_be_started():
    with pytest.raises(FileNotFoundError):
        run_child(["/no/such/program"], 5)
