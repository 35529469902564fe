"""What must not depend on the machine, or on what runs beside: ports, and made-up examples."""

from __future__ import annotations

import gc
import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from peerwatch_demo.stack import process

# Each worker takes ports of its own, since a server may be started minutes after its port was
# chosen; commands that tests start choose from the product's range, which is above these.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_FIRST, _PER_WORKER, _WORKERS = 9_500, 400, 6
_BEGIN = _FIRST + _PER_WORKER * (_WORKER % _WORKERS)
process.PORTS = range(_BEGIN, _BEGIN + _PER_WORKER)

# A shell that starts the tests in the background lets them ignore Ctrl-C, and what they start
# inherits that; tests that interrupt a command need it to be heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is written in Go (Prometheus, promtool, Helm) collects garbage whenever its memory has
# doubled, which in the small servers of tests is all the time; memory there is enough of.
_GO = {"GOGC": "1600", "GOMEMLIMIT": "512MiB"}
for _name, _value in _GO.items():
    os.environ.setdefault(_name, _value)

# Tests write many small files: on a disk that had much to do four modules took 119 s for what takes
# 38 s in memory. Who says where temporary files go has said so for these too.
_MEMORY, _LEAST_FREE_BYTES = "/dev/shm", 4 << 30


def _has_room_in_memory() -> bool:
    """Return whether programs and files of tests can be in memory: containers often have 64 MiB."""
    try:
        state = os.statvfs(_MEMORY)
    except OSError:
        return False
    free = state.f_bavail * state.f_frsize
    runs = not state.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK)
    return runs and free >= _LEAST_FREE_BYTES


if "TMPDIR" not in os.environ and _has_room_in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY

# Little of what is collected, and of what a test makes, is in cycles: to look for them after every
# 700 new objects takes a twentieth of a run.
_NEW_OBJECTS = 50_000
gc.disable()

# Files that an exporter's sources hold open are closed with the sources, which the collector of
# garbage finds late in a large process; many systems allow a process 1,024 of them.
_MORE_FILES = 256
_files = 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Distribute groups as pytest-xdist does, only faster."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from load_groups import LoadGroups

    return LoadGroups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let workers begin with what takes long: none shall be busy when all others have ended."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Leave all that was loaded, and 14,000 tests, out of every later search for unused cycles."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close what tests have left open, before it becomes too much."""
    global _files  # noqa: PLW0603 - of the process, as the files are
    now = _open_files()
    if now > _files + _MORE_FILES:
        gc.collect()
        now = _files = _open_files()
    # A module that needs many for a while shall not allow those after it as many more.
    _files = min(_files, now)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - after each of 14,000 tests


# How long an example takes is the machine's business: pytest-timeout ends what hangs. The examples
# are the same in every run, so that a change is not refused for what it did not do;
# `pytest --hypothesis-profile=search` looks for others, and for many more.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")
