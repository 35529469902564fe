"""The rules on several nodes after a time in which Prometheus evaluated nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from peerwatch_demo.stack.servers import find_program

CASES = sorted((Path(__file__).parent / "rules" / "gap").glob("*.test.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.partition(".")[0])
def test_a_gap_neither_forgets_nor_makes_what_nodes_share(path):
    command = [find_program("promtool"), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
