"""What the exporter's own processes use."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from fake_collectors import wait_until
from peerwatch_common.memory import search_rarely
from peerwatch_exporter.sources.host.own_processes import OwnProcesses

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def write(proc, pid, user, system, pages, name="python (a) b"):
    fields = ["S", *["0"] * 10, str(user), str(system), *["0"] * 8, str(pages), "0"]
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_processes_of_a_kind_are_summed(tmp_path):
    write(tmp_path, 1, TICKS, TICKS, 10)
    write(tmp_path, 2, 3 * TICKS, 0, 20)
    write(tmp_path, 3, 0, TICKS, 30)
    processes = OwnProcesses(tmp_path, 1)
    processes.add("driver", 2)
    processes.add("driver", 3)
    assert [("driver", 4.0, 50 * PAGE), ("main", 2.0, 10 * PAGE)] == processes.use()


def test_cpu_time_of_a_process_that_ended_still_counts(tmp_path):
    write(tmp_path, 1, 0, 0, 1)
    write(tmp_path, 2, 3 * TICKS, 0, 20)
    processes = OwnProcesses(tmp_path, 1)
    processes.add("driver", 2)
    processes.use()
    (tmp_path / "2" / "stat").unlink()
    assert ("driver", 3.0, 0) == processes.use()[0]
    processes.remove(2)
    write(tmp_path, 4, TICKS, 0, 5)
    processes.add("driver", 4)
    assert ("driver", 4.0, 5 * PAGE) == processes.use()[0]


def test_process_never_added_can_be_removed(tmp_path):
    OwnProcesses(tmp_path, 1).remove(7)


@pytest.mark.parametrize("text", ["", "1 (x", "1 (x) S 1 2", "1 (x) S " + "x " * 40, "1 x"])
def test_garbled_file_counts_as_nothing(tmp_path, text):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stat").write_text(text)
    assert [("main", 0.0, 0)] == OwnProcesses(tmp_path, 1).use()


def test_real_processes_use_something():
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdout=subprocess.DEVNULL)
    try:
        processes = OwnProcesses()
        processes.add("driver", child.pid)
        wait_until(lambda: processes.use()[0].cpu_seconds > 0)
        driver, main = processes.use()
    finally:
        child.kill()
        child.wait()
    assert ("driver", "main") == (driver.process, main.process)
    assert driver.resident_bytes > 10**6
    assert main.resident_bytes > 10**7


def test_searches_for_unused_cycles_are_rare_and_leave_out_what_was_there():
    threshold = gc.get_threshold()
    usual = 700
    try:
        gc.set_threshold(usual)
        search_rarely()
        assert gc.get_threshold()[0] > 10 * usual
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
