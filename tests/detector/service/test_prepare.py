"""What was never compiled before is compiled by a process whose memory goes with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from peerwatch_detector import compiled
from peerwatch_detector.service import prepare

SCRIPT = """
import json
from peerwatch_detector.detection import distances
from peerwatch_detector.service import prepare
from peerwatch_detector.models import forward
from peerwatch_detector.reading.decode import frames, matrix

prepare.prepare_apart()
stages = [matrix.decode_matrix, frames.decode_frames, distances.distance_sums, forward.embed]
print(json.dumps([[len(each.stats.cache_hits), len(each.stats.cache_misses)] for each in stages]))
"""


def test_the_first_start_loads_what_another_process_compiled(tmp_path: Path) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
    )

    assert [[1, 0]] * 4 == json.loads(done.stdout)


@pytest.mark.parametrize(
    ("not_kept", "hits", "started"), [([], 0, 1), ([], 1, 0), (["the disk is full"], 0, 0)]
)
def test_another_process_is_started_only_where_it_helps(
    monkeypatch: pytest.MonkeyPatch, not_kept: list[str], hits: int, started: int
) -> None:
    def mark(number: int) -> int:
        return number

    mark.stats = SimpleNamespace(  # type: ignore[attr-defined]
        cache_hits=Counter(dict.fromkeys(range(hits), 1))
    )
    commands = []
    popen = subprocess.Popen

    def start(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        commands.append(command)
        return popen([sys.executable, "-c", "raise SystemExit(1)"])

    monkeypatch.setattr(compiled, "_not_kept", not_kept)
    monkeypatch.setattr(prepare, "_mark", mark)
    monkeypatch.setattr(prepare.subprocess, "Popen", start)
    prepare.prepare_apart()

    assert started == len(commands)
