"""Flight Recorders of real jobs over gloo, recorded and live: the bad rank is named."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from detector.diagnosis.flight_recorder import to_arrivals, to_snapshot
from peerwatch_detector.diagnosis.collectives.hang.hang import hangs
from peerwatch_detector.diagnosis.collectives.slowness.lateness import compute_stragglers, typical
from peerwatch_detector.diagnosis.collectives.snapshot import Snapshot, StableCounts

RECORDED = Path(__file__).parents[1] / "data" / "flight-recorder"
JOB = Path(__file__).with_name("gloo_job.py")
# Half of the 80 ms that the bad rank takes longer.
LATE_SECONDS = 0.040


def _recorded(name: str) -> dict[int, dict]:
    dumps = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return {int(rank): dump for rank, dump in dumps.items()}


def test_recorded_hang():
    (root,) = hangs(to_snapshot(_recorded("hang"), 0))

    assert (root.class_name, root.ranks, root.victims) == ("not_launched", (2,), (0, 1, 3))
    assert root.wait.sequence == 67


def test_recorded_hang_without_a_dump_of_the_bad_rank():
    dumps = _recorded("hang")
    whole = to_snapshot(dumps, 0)
    del dumps[2]

    # Who belongs to the groups is known from before.
    without = to_snapshot(dumps, 10, silent=frozenset([2]))
    state = Snapshot(10, whole.groups, without.positions, without.silent)
    (root,) = hangs(state)

    assert (root.class_name, root.ranks, root.decided) == ("no_data", (2,), False)


def test_recorded_straggler():
    lateness = typical(to_arrivals(_recorded("slow"), newest=20))

    assert compute_stragglers(lateness, LATE_SECONDS) == (2,)


@pytest.fixture
def gloo_job(tmp_path):
    pytest.importorskip("torch")
    jobs = []

    def start(fault: str, ranks: int, bad: int) -> tuple[subprocess.Popen, Path]:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        arguments = [sys.executable, str(JOB), str(folder), fault, str(ranks), str(bad)]
        jobs.append(subprocess.Popen(arguments, start_new_session=True))
        return jobs[-1], folder

    yield start
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _dumps(folder: Path, ranks: int) -> dict[int, dict]:
    paths = {rank: folder / f"{rank}.json" for rank in range(ranks)}
    return {rank: json.loads(path.read_text()) for rank, path in paths.items() if path.exists()}


def test_a_real_straggler_is_named_within_20_steps(gloo_job):
    # A machine that runs more than it has cores for may hold up other ranks by 80 ms as well.
    for _ in range(3):
        job, folder = gloo_job("slow", ranks=8, bad=5)
        assert job.wait(timeout=250) == 0
        arrivals = to_arrivals(_dumps(folder, 8))
        assert arrivals["0"].starts.shape == (20, 8)
        named = compute_stragglers(typical(arrivals), LATE_SECONDS)
        if named == (5,):
            break

    assert named == (5,)


def test_a_real_hang_is_named_and_its_victims_are_not(gloo_job):
    _, folder = gloo_job("hang", ranks=4, bad=2)
    deadline = time.monotonic() + 120
    stable = StableCounts()
    roots = []
    while not roots and time.monotonic() < deadline:
        dumps = _dumps(folder, 4)
        if len(dumps) == 4:
            roots = hangs(stable.update(to_snapshot(dumps, time.time())))
        time.sleep(0.2)

    (root,) = roots
    assert (root.class_name, root.ranks, root.victims) == ("not_launched", (2,), (0, 1, 3))
