"""The whole program dies at every row and every request: each effect comes exactly once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import crash_runs
from peerwatch_responder.run import servers


@pytest.fixture
def _heard(monkeypatch):
    fault = frozenset(each.fingerprint for each in crash_runs.FAULT)
    monkeypatch.setattr(servers, "firing", lambda _: fault)
    # That a row is on the disk is another test; here it would only take time.
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize("part", range(5))
def test_one_effect_in_500_runs_of_two_senders(tmp_path, part):
    deaths = 0
    for seed in range(100 * part, 100 * part + 100):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        deaths += crash_runs.run(seed, folder)
    assert deaths > 200


@pytest.mark.usefixtures("_heard")
def test_one_effect_wherever_it_dies(tmp_path):
    (tmp_path / "whole").mkdir()
    places = crash_runs.places_of_a_run(tmp_path / "whole")
    # Rows about two alerts, a plan, five steps that begin and end, and the end; five requests.
    assert places > 30
    for place in range(places):
        folder = tmp_path / f"{place}"
        folder.mkdir()
        assert crash_runs.run(0, folder, crash_at=place) == 1


def test_one_effect_where_the_kernel_kills_it():
    command = [sys.executable, "-m", "crash_runs", "--runs", "4", "--kill"]
    path = os.pathsep.join(["tests", "exporter", "detector"])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("one effect each\n")
