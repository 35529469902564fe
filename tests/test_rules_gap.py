"""The rules on several nodes after a time in which Prometheus evaluated nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from peerwatch_demo.stack.servers import find_program

CASES = Path(__file__).parent / "rules" / "gap" / "shared.test.yaml"


def test_what_nodes_shared_is_remembered_over_a_gap():
    command = [find_program("promtool"), "test", "rules", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
