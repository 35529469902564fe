"""The driver processes, with real children on a library that hangs, crashes and vanishes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from driver_node import FAST, PATIENCE, QUICK, UUID, driver_node, gpus_of, restarts, values

UTILIZATION = "gpu_utilization_ratio"


def hang(scenario, *gpus):
    """Let the fast values of some GPUs never come."""
    for gpu in gpus:
        scenario["gpus"][gpu]["delays"] = {"nvmlDeviceGetUtilizationRates": 3600}


def recover(scenario, *gpus):
    for gpu in gpus:
        scenario["gpus"][gpu].pop("delays", None)
        scenario["gpus"][gpu].pop("crash", None)


def well(reports):
    return all(report.success and report.families for report in reports.values())


def in_time(reports):
    return all(report.error is None for report in reports.values())


def wait_for(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_values_are_those_of_the_library(tmp_path):
    with driver_node(tmp_path, gpus=8) as node:
        found = values(node.until(well)["gpu"])

    assert 0.99 == found[UTILIZATION, "3", UUID(3)]
    assert 625.308 == found["gpu_power_watts", "3", UUID(3)]
    assert 8 == found["gpus_visible",]
    assert 0 == found["exporter_nvml_restarts_total", "gpu_hung"]
    assert 0 == found["exporter_nvml_unkillable_processes",]


def test_reports_say_when_and_how_long(tmp_path):
    with driver_node(tmp_path) as node:
        before = time.monotonic()
        reports = node.until(lambda reports: well(reports) and in_time(reports))
        after = time.monotonic()

    for report in reports.values():
        assert before < report.started < after
        assert 0 < report.duration < after - before
        assert report.error is None
        assert not any(report.stuck_seconds.values())
        assert abs(report.last_success - time.time()) < PATIENCE


def test_labels_stay_the_same_objects_as_long_as_they_stay_the_same(tmp_path):
    with driver_node(tmp_path) as node:
        node.until(well)
        first, second = (
            {f.spec.name: [row[0] for row in f.rows] for f in node.tick()["nvlink"].families}
            for _ in range(2)
        )

    assert first == second
    assert all(a is b for name in first for a, b in zip(first[name], second[name], strict=True))


def test_hanging_gpu_costs_only_itself(tmp_path):
    with driver_node(tmp_path, names=(*FAST, "health"), limits=QUICK) as node:
        node.until(well)
        hang(node.scenario, 1)
        node.write()
        # The others go on together, from the first tick in which a process answers for them. In
        # one that is late, whoever is just called is suspected: on a busy machine any of them.
        seen = []
        reports = node.until(
            lambda reports: (
                reports["gpu"].success
                and (seen.append(gpus_of(reports["gpu"], UTILIZATION)) or True)
                and reports["gpu"].error == "gpu_stuck"
            )
        )
        later = node.tick()
        # The one for the GPU that hangs is replaced again and again.
        apart = {frozenset({0, 2}), frozenset({1})}
        wait_for(lambda: apart == {frozenset(node.touched(pid)) for pid in node.children()})

    assert [] == [gpus for gpus in seen if gpus & {"0", "2"} not in (set(), {"0", "2"})]
    assert {"0", "2"} == gpus_of(reports["gpu"], UTILIZATION)
    assert {"0", "1", "2"} == gpus_of(reports["gpu"], "gpu_info")
    found = values(reports["gpu"])
    assert [1, 0, 1] == [found["gpu_present", str(n), UUID(n)] for n in range(3)]
    assert 2 == found["gpus_visible",]
    assert 3 == values(reports["health"])["gpus_expected",]
    assert 1 <= restarts(reports)["gpu_hung"]
    # A busy machine may let the one for all wait for so long that it is taken for hanging.
    assert {"gpu_hung"} == restarts(reports).keys() - {"library_hung"}
    assert {"1"} == reports["gpu"].stuck_seconds.keys()
    assert later["gpu"].stuck_seconds["1"] > reports["gpu"].stuck_seconds["1"]


def test_stuck_seconds_rise_over_every_restart_and_end_with_the_next_success(tmp_path):
    with driver_node(tmp_path, limits=QUICK) as node:
        node.until(well)
        hang(node.scenario, 0)
        node.write()
        stuck = []
        node.until(
            lambda reports: (
                stuck.append(reports["gpu"].stuck_seconds.get("0", 0))
                or restarts(reports).get("gpu_hung", 0) >= 3
            )
        )
        recover(node.scenario, 0)
        node.write()
        everybody = {"0", "1", "2"}
        reports = node.until(lambda reports: everybody == gpus_of(reports["gpu"], UTILIZATION))

    assert stuck == sorted(stuck)
    assert stuck[-1] > 3 * QUICK.hang
    assert not any(reports["gpu"].stuck_seconds.values())


def test_gpu_that_answers_again_returns_to_the_main_process(tmp_path):
    with driver_node(tmp_path, limits=QUICK) as node:
        node.until(well)
        hang(node.scenario, 2)
        node.write()
        node.until(lambda _: len(node.children()) == 2)
        recover(node.scenario, 2)
        node.write()
        node.until(lambda _: [{0, 1, 2}] == [node.touched(pid) for pid in node.children()])
        reports = node.until(lambda r: well(r) and not any(r["gpu"].stuck_seconds.values()))

    found = values(reports["gpu"])
    assert 3 == found["gpus_visible",]
    assert well(reports)


def test_two_gpus_may_hang_at_once(tmp_path):
    with driver_node(tmp_path, gpus=4, limits=QUICK) as node:
        node.until(well)
        hang(node.scenario, 1, 3)
        node.write()
        reports = node.until(
            lambda reports: (
                reports["gpu"].success and {"1", "3"} == reports["gpu"].stuck_seconds.keys()
            )
        )
        recover(node.scenario, 1)
        node.write()
        one_left = node.until(lambda r: gpus_of(r["gpu"], UTILIZATION) == {"0", "1", "2"})

    assert {"0", "2"} == gpus_of(reports["gpu"], UTILIZATION)
    assert "3" in one_left["gpu"].stuck_seconds
    assert 3 == values(one_left["gpu"])["gpus_visible",]


def test_more_hanging_gpus_than_processes_are_left_out_and_named(tmp_path):
    with driver_node(tmp_path, gpus=7, limits=QUICK) as node:
        node.until(well)
        hang(node.scenario, *range(6))
        node.write()
        reports = node.until(
            lambda reports: (
                reports["gpu"].success and set("012345") == reports["gpu"].stuck_seconds.keys()
            )
        )
        assert len(node.children()) <= 1 + 4
        recover(node.scenario, *range(6))
        node.write()
        node.until(lambda r: gpus_of(r["gpu"], UTILIZATION) == set("0123456"))

    assert {"6"} == gpus_of(reports["gpu"], UTILIZATION)


def test_gpu_that_hangs_when_it_is_listed_is_set_apart(tmp_path):
    def hanging_lookup(scenario):
        scenario["gpus"][1]["delays"] = {"nvmlDeviceGetUUID": 3600}

    limits = replace(QUICK, library=3.0)
    with driver_node(tmp_path, before=hanging_lookup, limits=limits) as node:
        reports = node.until(lambda reports: reports["gpu"].success)

    assert {"0", "2"} == gpus_of(reports["gpu"], UTILIZATION)
    assert {"1"} == reports["gpu"].stuck_seconds.keys()


def test_slow_library_is_waited_for(tmp_path):
    with driver_node(tmp_path, scenario={"init_delay": 1.5}) as node:
        late = node.until(lambda reports: reports["gpu"].error == "deadline_exceeded")
        reports = node.until(well)

    assert {""} == late["gpu"].stuck_seconds.keys()
    assert {} == restarts(reports)
    assert not any(reports["gpu"].stuck_seconds.values())


def test_library_that_hangs_is_started_again_and_no_gpu_is_blamed(tmp_path):
    limits = replace(QUICK, library=3.0)
    with driver_node(tmp_path, scenario={"init_delay": 3600}, limits=limits) as node:
        reports = node.until(lambda reports: restarts(reports).get("library_hung", 0) >= 2)
        node.write(init_delay=0)
        again = node.until(well)

    assert {""} == reports["gpu"].stuck_seconds.keys()
    assert not reports["gpu"].success
    assert {"0", "1", "2"} == gpus_of(again["gpu"], UTILIZATION)


def test_stopped_process_is_replaced(tmp_path):
    with driver_node(tmp_path, limits=QUICK) as node:
        node.until(well)
        (pid,) = node.children()
        os.kill(pid, signal.SIGSTOP)
        reports = node.until(lambda reports: restarts(reports) and well(reports))
        wait_for(lambda: is_gone(pid))

    # It may have been stopped in the middle of a call.
    assert {"library_hung", "gpu_hung"} >= restarts(reports).keys()


@pytest.mark.parametrize("how", ["exit", "signal", "half", "garbage", "huge", "shape"])
def test_child_that_dies_or_babbles_in_a_call_costs_one_gpu(tmp_path, how):
    with driver_node(tmp_path) as node:
        node.until(well)
        node.scenario["gpus"][0]["crash"] = how
        node.write()
        reports = node.until(
            lambda reports: reports["gpu"].success and reports["gpu"].error == "gpu_stuck"
        )
        recover(node.scenario, 0)
        node.write()
        node.until(lambda r: gpus_of(r["gpu"], UTILIZATION) == {"0", "1", "2"})

    reason = "crashed" if how in {"exit", "signal", "half"} else "bad_answer"
    assert {reason} == restarts(reports).keys()
    assert {"1", "2"} == gpus_of(reports["gpu"], UTILIZATION)
    # A process that fails says nothing of the GPU.
    found = values(reports["gpu"])
    assert ("gpu_present", "0", UUID(0)) not in found
    assert ("gpus_visible",) not in found
    assert 1 == found["gpu_unreadable", "0", UUID(0), reason]


def test_killed_child_is_replaced(tmp_path):
    with driver_node(tmp_path) as node:
        node.until(well)
        (pid,) = node.children()
        os.kill(pid, signal.SIGKILL)
        reports = node.until(lambda reports: restarts(reports) and well(reports))

    assert {"crashed": 1} == restarts(reports)


def test_error_counts_survive_the_process(tmp_path):
    def failing(scenario):
        scenario["gpus"][0]["errors"] = {"nvmlDeviceGetUtilizationRates": 999}

    def errors(reports):
        return values(reports["gpu"]).get(("exporter_nvml_errors_total", "unknown"), 0)

    with driver_node(tmp_path, before=failing) as node:
        before = errors(node.until(lambda reports: errors(reports) >= 3))
        (pid,) = node.children()
        os.kill(pid, signal.SIGKILL)
        seen = []
        node.until(
            lambda reports: (
                seen.append(errors(reports))
                or (node.children() != {pid} and reports["gpu"].error is None)
            )
        )

    assert seen == sorted(seen)
    assert seen[-1] > before


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
        reports = node.until(well)

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
    limits = replace(QUICK, death=0.2)

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
