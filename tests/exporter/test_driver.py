"""The driver processes, with real children on a library that hangs, crashes and vanishes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest

from driver_node import FAST, PATIENCE, PATIENT, QUICK, UUID, driver_node, gpus_of, restarts, values
from driver_process import UTILIZATION, hang, in_time, is_gone, recover, wait_for, well


def test_values_are_those_of_the_library(tmp_path):
    with driver_node(tmp_path, gpus=8) as node:
        found = values(node.until(well)["gpu"])

    assert 0.99 == found[UTILIZATION, "3", UUID(3)]
    assert 625.308 == found["gpu_power_watts", "3", UUID(3)]
    assert 8 == found["gpus_visible",]
    assert 0 == found["exporter_nvml_restarts_total", "gpu_hung"]
    assert 0 == found["exporter_nvml_unkillable_processes",]


def test_the_first_process_starts_at_once(tmp_path):
    """Not when the manager next looks after its children: the first scrape would find no GPUs."""
    with driver_node(tmp_path, limits=replace(PATIENT, poll=3600.0)) as node:
        wait_for(node.children)


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
