"""The driver's processes from start to end: drivers that come and go, release, stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from driver_node import FAST, PATIENCE, QUICK, UUID, driver_node, gpus_of, restarts, values
from driver_process import UTILIZATION, hang, is_gone, wait_for, well
from peerwatch_exporter.driver.limits import Limits
from peerwatch_exporter.driver.state import DriverState
from peerwatch_exporter.settings.config import ExporterConfig


def test_node_without_driver_pays_no_process(tmp_path):
    with driver_node(tmp_path, scenario={"no_library": True}) as node:
        reports = node.until(lambda r: all(report.success for report in r.values()))
        wait_for(lambda: not node.children())
        again = node.tick()

    assert {name: {} for name in FAST} == {name: values(report) for name, report in reports.items()}
    assert {None} == {report.error for report in again.values()}


def test_late_driver_is_picked_up_when_its_version_appears(tmp_path):
    with driver_node(tmp_path, scenario={"no_library": True}) as node:
        node.until(lambda r: all(report.success for report in r.values()))
        wait_for(lambda: not node.children())
        node.write(no_library=False)
        node.version.write_text("NVRM version: 580.65.06\n")
        reports = node.until(lambda r: gpus_of(r["gpu"], UTILIZATION))

    assert 3 == values(reports["gpu"])["gpus_visible",]


def test_driver_without_version_file_is_looked_for_now_and_then(tmp_path):
    limits = replace(QUICK, absence=0.5)
    with driver_node(tmp_path, scenario={"no_library": True}, limits=limits) as node:
        node.until(lambda r: all(report.success for report in r.values()))
        node.write(no_library=False)

        assert node.until(well)


def test_expected_gpus_are_told_of_without_a_driver(tmp_path):
    config = {"gpu": {"expected_count": 8}}
    scenario = {"no_library": True}
    with driver_node(tmp_path, scenario=scenario, names=("health",), config=config) as node:
        reports = node.until(lambda r: r["health"].error == "nvml_library_not_found")

    assert {("gpus_expected",): 8, ("gpus_configured",): 8} == {
        key: value for key, value in values(reports["health"]).items() if key[0].startswith("gpu")
    }


def test_children_follow_other_settings_without_a_restart(tmp_path):
    links = "nvlink_up"
    with driver_node(tmp_path, names=("gpu", "health", "nvlink_errors")) as node:
        node.until(lambda r: gpus_of(r["nvlink_errors"], links))
        node.until(lambda r: values(r["health"]).get(("gpus_expected",)) == 3)
        settings = {"gpu": {"expected_count": 8}, "nvlink": {"per_link": False}}
        node.driver.follow(ExporterConfig.model_validate(settings))

        node.until(lambda r: values(r["health"]).get(("gpus_expected",)) == 8)
        node.until(lambda r: r["nvlink_errors"].success and not gpus_of(r["nvlink_errors"], links))
        assert {} == restarts(node.until(lambda r: gpus_of(r["gpu"], UTILIZATION)))


@pytest.mark.parametrize("code", [1, 9, 18], ids=["uninitialised", "not_loaded", "mismatch"])
def test_reloaded_driver_gets_a_new_process(tmp_path, code):
    with driver_node(tmp_path) as node:
        node.until(well)
        (pid,) = node.children()
        node.write(reloaded=code, driver_version="580.65.06")
        wait_for(lambda: node.tick() and pid not in node.children())
        node.write(reloaded=0)
        reports = node.until(well)

    # Those that came while it was being exchanged could not even begin.
    assert "driver_reloaded" in restarts(reports)
    assert {"driver_reloaded", "library_failed"} >= restarts(reports).keys()
    assert {"580.65.06"} == {
        labels[6]
        for f in reports["gpu"].families
        if f.spec.name == "gpu_info"
        for labels, _ in f.rows
    }


def test_gpus_of_an_unloaded_driver_are_not_present(tmp_path):
    with driver_node(tmp_path, names=(*FAST, "health")) as node:
        node.until(well)
        node.write(no_library=True, reloaded=1)
        reports = node.until(lambda r: r["gpu"].error == "nvml_library_not_found")

    assert not reports["gpu"].success
    found = values(reports["gpu"])
    assert set() == gpus_of(reports["gpu"], UTILIZATION)
    assert [0, 0, 0] == [found["gpu_present", str(n), UUID(n)] for n in range(3)]
    assert 0 == found["gpus_visible",]
    assert 3 == values(reports["health"])["gpus_expected",]


def test_library_that_cannot_be_used_is_an_error_and_tried_again(tmp_path):
    with driver_node(tmp_path, scenario={"init_error": 18}) as node:
        reports = node.until(lambda reports: restarts(reports).get("library_failed", 0) >= 2)
        node.write(init_error=0)
        node.until(well)

    assert (False, "nvml_version_mismatch") == (reports["gpu"].success, reports["gpu"].error)


def test_release_ends_the_children_until_another_driver_is_loaded(tmp_path):
    with driver_node(tmp_path) as node:
        node.version.write_text("old\n")
        node.until(well)
        (pid,) = node.children()
        node.driver.release(3600)
        wait_for(lambda: not node.children() and is_gone(pid))
        released = node.tick()
        node.version.unlink()
        time.sleep(4 * QUICK.poll)
        assert not node.children()
        node.version.write_text("new\n")
        reports = node.until(well)

    assert 0 == values(released["gpu"])["gpus_visible",]
    assert released["gpu"].success
    assert {"released": 1} == restarts(reports)


def test_release_ends_by_itself(tmp_path):
    with driver_node(tmp_path) as node:
        node.until(well)
        node.driver.release(0.5)
        wait_for(lambda: not node.children())

        assert node.until(well)


def test_process_that_cannot_be_killed_is_counted_and_left_behind(tmp_path):
    spared = []
    # A machine that stands still for a second must not make others hang.
    limits = replace(QUICK, hang=3.0, run=9.0, death=0.2)

    def unkillable(pid, number):
        spared.append(pid)
        if is_over:
            os.kill(pid, number)

    is_over = []
    with driver_node(tmp_path, limits=limits, kill=unkillable) as node:
        try:
            node.until(well)
            hang(node.scenario, 0)
            node.write()
            # One of the main role, and three that were for this GPU alone.
            reports = node.until(
                lambda r: values(r["gpu"])["exporter_nvml_unkillable_processes",] == 4
            )
            time.sleep(2 * QUICK.longest_pause)
            assert 4 == len(spared)
            os.kill(spared[-1], signal.SIGKILL)
            wait_for(lambda: node.tick() and len(spared) == 5)
        finally:
            is_over.append(True)
            for pid in spared:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: all(is_gone(pid) for pid in spared))

    assert {"1", "2"} == gpus_of(reports["gpu"], UTILIZATION)


def test_request_never_waits(tmp_path):
    with driver_node(tmp_path) as node:
        node.until(well)
        (pid,) = node.children()
        os.kill(pid, signal.SIGSTOP)
        before = node.workers["gpu"].report(0).timeouts
        for _ in range(1000):
            for worker in node.workers.values():
                worker.request()
        # One run is under way, whatever was asked since.
        assert before + 1 == node.workers["gpu"].report(0).timeouts
        assert before + 1 == node.workers["gpu"].report(0).timeouts


def test_stuck_worker_says_so(tmp_path):
    with driver_node(tmp_path, limits=replace(QUICK, hang=5.0)) as node:
        before = node.until(well)["gpu"].timeouts
        assert not node.workers["gpu"].is_stuck()
        (pid,) = node.children()
        os.kill(pid, signal.SIGSTOP)
        reports = node.tick()
        assert node.workers["gpu"].is_stuck()
        # What was last known of GPUs that nobody blames is still shown.
        assert 2 <= len(gpus_of(reports["gpu"], UTILIZATION))
        node.until(well)
        assert not node.workers["gpu"].is_stuck()

    assert (False, "deadline_exceeded") == (reports["gpu"].success, reports["gpu"].error)
    assert before + 1 == reports["gpu"].timeouts


def test_old_values_are_not_shown_for_ever(tmp_path):
    limits = replace(QUICK, hold=0.2, hang=3600.0, run=3600.0)
    with driver_node(tmp_path, limits=limits) as node:
        node.until(well)
        (pid,) = node.children()
        os.kill(pid, signal.SIGSTOP)
        reports = node.until(lambda reports: not gpus_of(reports["gpu"], UTILIZATION))

    assert {"0", "1", "2"} == gpus_of(reports["gpu"], "gpu_info")


def test_children_end_with_their_parent(tmp_path):
    script = (
        "import sys, time, pathlib, driver_node\n"
        "with driver_node.driver_node(pathlib.Path(sys.argv[1])) as node:\n"
        "    node.until(lambda r: r['gpu'].families)\n"
        "    print(*node.children(), flush=True)\n"
        "    time.sleep(3600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        (child,) = map(int, parent.stdout.readline().split())
        assert not is_gone(child)
        parent.kill()
        wait_for(lambda: is_gone(child))


def test_interrupt_is_the_parents_business(tmp_path):
    with driver_node(tmp_path) as node:
        node.until(well)
        (pid,) = node.children()
        os.kill(pid, signal.SIGINT)
        reports = node.until(well)

        assert {pid} == node.children()
    assert {} == restarts(reports)


def test_stop_leaves_no_child(tmp_path):
    with driver_node(tmp_path) as node:
        node.until(well)
        pids = node.children()
        node.driver.stop()

        assert all(is_gone(pid) for pid in pids)
        assert set() == node.children()


@pytest.mark.usefixtures("many_open_files")
def test_children_of_a_parent_with_many_open_files_answer(tmp_path):
    with driver_node(tmp_path) as node:
        assert {} == restarts(node.until(well))


def test_no_collector_no_process(tmp_path):
    with driver_node(tmp_path, names=()) as node:
        assert {} == node.tick()
        assert set() == node.children()


def test_child_that_cannot_be_started_is_tried_again(tmp_path):
    command = tmp_path / "driver"
    with driver_node(tmp_path, command=[str(command)]) as node:
        failed = node.tick()
        real = [sys.executable, str(Path(__file__).parent / "hanging_driver.py"), str(node.path)]
        command.write_text(f'#!/bin/sh\nexec {" ".join(real)} "$@"\n')
        command.chmod(0o755)

        assert node.until(well)
    assert not failed["gpu"].success


def test_facts_reach_the_parent(tmp_path):
    def busy(scenario):
        scenario["gpus"][1]["processes"] = [[4242, 10**9], [17, None]]
        scenario["xids"] = [[2, 79]]

    with driver_node(tmp_path, before=busy) as node:
        facts = node.sources.gpus
        node.until(lambda _: facts.processes().get(1))
        events = []
        node.until(lambda _: events.extend(facts.take_events()) or events)

    assert {0: (), 1: (17, 4242), 2: ()} == dict(facts.processes())
    assert [UUID(0), UUID(1), UUID(2)] == [board.uuid for board in facts.boards()]
    assert [(facts.boards()[2].pci_bus_id, 79)] == [event[:2] for event in events]
    assert abs(events[0].timestamp - time.time()) < PATIENCE


def test_slow_first_start_is_one_line_for_all_collectors(caplog):
    slow = DriverState(Limits(), None, clock=lambda: 0.0, unkillable=lambda: 0)
    for name in ("gpu", "gpm", "health"):
        slow.add(name, 1.0)
    said = []
    with caplog.at_level(logging.INFO):
        for now in range(20):
            for name in ("gpu", "gpm", "health"):
                slow.request(name, float(now))
                error = slow.report(name, now + 0.8).error
                assert ("driver_starting" if now < 3 else "deadline_exceeded") == error
            said.append(slow.slow_start(float(now)))
    assert [5.0] == [seconds for seconds in said if seconds is not None]
    assert not caplog.records
