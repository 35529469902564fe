"""What was never compiled before is compiled by a process whose memory goes with it."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from peerwatch_detector import compiled
from peerwatch_detector.__main__ import main
from peerwatch_detector.reading.decode.prepare import prepare as reads_compiled
from peerwatch_detector.service import prepare

# One function is enough to see it; that all are made ready is seen in test_compiled.py.
FEWER = """
import json
import numpy as np
from peerwatch_detector.detection import distances
from peerwatch_detector.service import prepare

def fewer():
    points = np.zeros((2, 12), np.float32)
    distances.distance_sums(points, points)
"""
SCRIPT = f"""{FEWER}
prepare.prepare = fewer
assert prepare._COMPILES == "from peerwatch_detector.service.prepare import prepare; prepare()"
prepare._COMPILES = {FEWER + "fewer()"!r}
prepare.prepare_apart()
stats = distances.distance_sums.stats
print(json.dumps([len(stats.cache_hits), len(stats.cache_misses)]))
"""


def test_the_first_start_loads_what_another_process_compiled(tmp_path: Path) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
    )

    assert [1, 0] == json.loads(done.stdout)


# A start that is ended while another process compiles for it.
ENDED = """
import os
from peerwatch_detector.service import prepare
prepare._compile_apart = lambda: os._exit(0)
prepare.prepare = lambda: None
prepare.prepare_apart(lambda: print("compiling", flush=True))
"""


def test_a_start_after_one_that_was_ended_while_it_compiled_compiles_too(tmp_path: Path) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}

    def start() -> bytes:
        return subprocess.run(
            [sys.executable, "-c", ENDED],
            env=os.environ | environment,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout

    # Or its jobs would wait for the compiler.
    assert [b"compiling\n"] * 2 == [start(), start()]


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
    told: list[int] = []
    prepare.prepare_apart(lambda: told.append(len(commands)))

    assert started == len(commands)
    # Whoever waits for what is only loaded does not wait for a compiler.
    assert ([] if hits else [0]) == told


# A whole cycle over HTTP while another thread compiles, and what was compiled by then.
DURING = """
import gc, json, threading
from numba.core.dispatcher import Dispatcher
from detector.reading.fake_server import fake_server
from detector.reading.test_bad_servers import NOW, info, is_range, samples
from peerwatch_detector import compiled
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.shipped import shipped_bundle
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.service import prepare
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.schedule import Backlog

proceed = threading.Event()
prepare.prepare_apart = lambda compiling: (compiling(), proceed.wait())

compiled.load()

def signatures():
    found = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    assert len(found) > 20
    return sum(len(each.signatures) for each in found)

thread = prepare.prepare_in_background()
result = []
with fake_server() as server:
    server.respond = lambda handler, asked: (samples() if is_range(asked) else info())(
        handler, asked
    )
    for method in ("peerwatch", "minder", "zscore"):
        config = DetectorConfig.model_validate({
            "prometheus": {"url": server.url},
            "method": method,
            "metrics": {"enabled": ["gpu_power"]},
        })
        reader = PrometheusReader(config.prometheus)
        detector = Detector(config, reader, shipped_bundle(), lambda: NOW)
        detector.cycle()
        (detection,) = detector.snapshot.detections
        result.append([detector.snapshot.preparing, detection.coverage["gpu_power"], signatures()])
proceed.set()
thread.join()
detector.publish(Backlog())
result.append(detector.snapshot.preparing)
print(json.dumps(result))
"""


def test_jobs_are_read_and_evaluated_while_nothing_is_compiled_yet(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[2])
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([tests, *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", DURING],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
    )

    assert [[True, 1.0, 0]] * 3 + [False] == json.loads(done.stdout)


def test_a_compiler_that_fails_leaves_the_slower_path(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "_failure", None)

    def fail(_compiling: object) -> None:
        raise RuntimeError("no LLVM")

    monkeypatch.setattr(prepare, "prepare_apart", fail)
    prepare.prepare_in_background().join()

    assert (False, False) == (compiled.ready(), compiled.preparing())
    assert "no LLVM" in str(compiled.failure())
    assert "not_prepared consequence=slower_path" in caplog.text


def test_what_was_loaded_is_left_out_of_searches_for_unused_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threshold = gc.get_threshold()
    monkeypatch.setattr(prepare, "prepare_apart", lambda _compiling: None)
    try:
        gc.set_threshold(700)
        thread = prepare.prepare_in_background()
        # It is done before a job is read.
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] > 7_000
        thread.join()
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)


def test_the_command_compiles_and_says_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["prepare"])
    assert "kept in " in capsys.readouterr().err

    monkeypatch.setattr(compiled, "_not_kept", ["/cache: no space left"])
    assert 1 == main(["prepare"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert "cannot be kept: /cache: no space left; set NUMBA_CACHE_DIR" in said

    monkeypatch.setattr(compiled, "MISSING", "numba cannot be imported: gone")
    assert 1 == main(["prepare"])
    assert "install numba" in capsys.readouterr().err.splitlines()[-1]


def test_an_image_brings_what_was_compiled_when_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, cache = tmp_path / "image", tmp_path / "cache"
    (image / "reading").mkdir(parents=True)
    (image / "reading" / "matrix.nbi").write_bytes(b"built")
    monkeypatch.setenv(prepare.COMPILED_BEFOREHAND, str(image))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    monkeypatch.setattr(prepare, "_is_kept", lambda: True)
    prepare.prepare_apart()
    kept = cache / "reading" / "matrix.nbi"
    assert b"built" == kept.read_bytes()

    # What was compiled since, for this processor, stays.
    kept.write_bytes(b"newer")
    prepare.prepare_apart()
    assert b"newer" == kept.read_bytes()


def test_the_first_start_compiles_before_there_is_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, proceed = threading.Event(), threading.Event()
    started: list[int] = []

    def compile_apart() -> None:
        started.append(1)
        begun.set()
        assert proceed.wait(60)

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_deferred", False)
    monkeypatch.setattr(prepare, "_compile_apart", compile_apart)
    monkeypatch.setattr(prepare, "_is_kept", lambda: True)
    thread = prepare.compile_in_background()
    assert begun.wait(60)
    # What is asked of the server before there is a job loads nothing.
    assert (False, False, False) == (reads_compiled(), compiled.ready(), compiled.preparing())

    # The first job comes in the meantime: it is not made to wait.
    preparing = prepare.prepare_in_background()
    assert compiled.preparing()
    proceed.set()
    thread.join()
    preparing.join()
    assert (True, True, False) == (reads_compiled(), compiled.ready(), compiled.preparing())

    (tmp_path / "kept.nbi").touch()
    prepare.compile_in_background().join()
    assert [1] == started
