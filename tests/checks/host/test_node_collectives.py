"""Collectives between processes of this machine, over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.accelerators.devices import CPU
from peerwatch_checks.check import Context, Skip
from peerwatch_checks.checks.host import node_collectives as module
from peerwatch_checks.checks.host.node_collectives import (
    NodeCollectivesOptions,
    node_collectives,
)
from peerwatch_checks.collectives import ranks
from peerwatch_checks.collectives.ranks import Measured, measure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def context(tmp_path: Path) -> Context:
    options = NodeCollectivesOptions(cpu_megabytes=1, cpu_ranks=2, cpu_repeats=2)
    return Context(options, "n1", tmp_path, 240.0)


def test_processes_reduce_and_exchange_over_gloo(context: Context) -> None:
    found = {each.device: each for each in node_collectives(context, devices=[CPU] * 3)}
    assert set(found) == {"all_reduce", "all_to_all"}
    for each in found.values():
        assert each.status == "pass", each.message
        assert each.value is not None
        assert each.value > 0


def test_what_a_job_sets_does_not_reach_the_test(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "512")
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "none0")
    assert ["pass", "pass"] == [
        each.status for each in node_collectives(context, devices=[CPU, CPU])
    ]


def test_a_rank_that_cannot_start_is_named_at_once_with_its_reason() -> None:
    begun = time.monotonic()
    # Of three, the others would wait for it until the end.
    found = measure(["cpu", "nowhere:9", "cpu"], "gloo", size=1024, repeats=1, seconds=900.0)
    assert time.monotonic() - begun < 600
    assert found.bandwidth == {}
    assert found.silent == (1,)
    assert found.failure.startswith("rank 1: ")
    assert "nowhere" in found.failure


def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif '\"rank\": 1' in sys.orig_argv[-1]: os.kill(os.getpid(), 9)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {"PYTHONPATH": path}
    found = measure(
        ["cpu", "cpu"], "gloo", size=1024, repeats=1, seconds=900.0, environment=environment
    )
    assert (1,) == found.silent
    assert "rank 1 ended and said nothing" == found.failure


def test_a_collective_that_never_ends_is_ended(tmp_path: Path) -> None:
    # Python runs it before anything else: the second rank never joins the group.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif '\"rank\": 1' in sys.orig_argv[-1]: time.sleep(1000)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    found = measure(
        ["cpu", "cpu"],
        "gloo",
        size=1024,
        repeats=1,
        seconds=5.0,
        environment={"PYTHONPATH": path},
    )
    assert found.bandwidth == {}
    assert 1 in found.silent
    assert found.failure


class Started(subprocess.Popen[bytes]):
    """A rank that never answers, and that the kernel may keep although it was killed."""

    stays = False
    killed = False

    def kill(self) -> None:
        self.killed = True
        super().kill()

    def wait(self, timeout: float | None = None) -> int:
        if self.stays:
            assert timeout is not None
            raise subprocess.TimeoutExpired("rank", timeout)
        return super().wait(timeout)


def sleeper() -> Started:
    return Started(["sleep", "1000"])


def test_a_rank_that_hangs_in_the_kernel_is_named_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Started] = []

    def start(rank: dict[str, object], _environment: object, folder: Path) -> Started:
        (folder / f"errors-{rank['rank']}").touch()
        found.append(sleeper())
        found[-1].stays = rank["rank"] == 1
        return found[-1]

    monkeypatch.setattr(ranks, "_start", start)
    try:
        assert (0, 1) == measure(["cpu"] * 2, "gloo", size=1, repeats=1, seconds=0.1).silent
    finally:
        for each in found:
            subprocess.Popen.wait(each)


def test_ranks_end_where_a_further_one_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Started] = []

    def start(*_: object) -> Started:
        if found:
            raise BlockingIOError("no process left")
        found.append(sleeper())
        return found[-1]

    monkeypatch.setattr(ranks, "_start", start)
    try:
        with pytest.raises(BlockingIOError):
            measure(["cpu"] * 2, "gloo", size=1, repeats=1, seconds=60.0)
        assert found[0].killed
    finally:
        found[0].kill()
        found[0].wait()


def answered(monkeypatch: pytest.MonkeyPatch, *answers: Measured) -> list[dict[str, str]]:
    environments: list[dict[str, str]] = []

    def answer(*_: object, environment: dict[str, str], **__: object) -> Measured:
        environments.append(environment)
        return answers[len(environments) - 1]

    monkeypatch.setattr(module, "measure", answer)
    return environments


GPUS = [
    replace(CPU, name=f"cuda:{index}", label=f"gpu {index}", model="NVIDIA H100 80GB HBM3")
    for index in range(8)
]
HUNG = Measured({}, {}, "no answer in 60 s", (3,))


def test_paths_between_gpus_are_to_blame_only_if_it_works_without_them(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = Measured({"all_reduce": 40.0}, {})
    environments = answered(monkeypatch, HUNG, well)
    (found,) = node_collectives(context, devices=GPUS)
    assert found.status == "fail"
    assert "gpu 3" in found.message
    assert [{}, {"NCCL_P2P_DISABLE": "1"}] == environments

    answered(monkeypatch, HUNG, HUNG)
    (found,) = node_collectives(context, devices=GPUS)
    assert found.status == "error"


def test_a_failure_without_gpus_never_counts_against_the_node(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, HUNG)
    (found,) = node_collectives(context, devices=[CPU] * 4)
    assert found.status == "error"


def test_wrong_sums_and_low_bandwidth_fail(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, Measured({"all_reduce": 490.0, "all_to_all": 300.0}, {}))
    assert ["pass", "pass"] == [each.status for each in node_collectives(context, devices=GPUS)]
    answered(monkeypatch, Measured({"all_reduce": 300.0}, {}))
    assert ["fail"] == [each.status for each in node_collectives(context, devices=GPUS)]
    answered(monkeypatch, Measured({"all_reduce": 490.0}, {"all_reduce": (0, 5)}))
    (wrong,) = node_collectives(context, devices=GPUS)
    assert (wrong.status, wrong.device) == ("fail", "all_reduce")
    assert "gpu 0, gpu 5" in wrong.message


def test_one_gpu_is_no_group(context: Context) -> None:
    with pytest.raises(Skip, match="two GPUs"):
        list(node_collectives(context, devices=GPUS[:1]))
