"""Which checks a command means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peerwatch_checks.check import Check, registered
from peerwatch_checks.checks.host import filesystem_space  # noqa: F401 - registers it
from peerwatch_checks.run.needs import Node, has_peers, missing
from peerwatch_checks.run.suite import chosen, seconds_for

BASE = replace(registered("filesystem_space"), timeout_seconds=10.0)


def made(name: str, **fields: object) -> Check:
    return replace(BASE, name=name, **fields)  # type: ignore[arg-type]


CHECKS = {
    check.name: check
    for check in (
        made("load", suites=("light", "full"), active=True),
        made("read", suites=("config", "light", "full")),
        made("partner", scope="pair", suites=("full",), active=True),
        made("train", scope="multi", suites=(), active=True),
        made("burn", suites=(), active=True),
    )
}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("config",), ["read"]),
        (("light",), ["read", "load"]),
        (("full",), ["read", "load"]),
        (("pair",), ["partner"]),
        (("offline",), ["train"]),
        (("burn", "load", "load"), ["burn", "load"]),
        (("light", "burn"), ["read", "burn", "load"]),
    ],
    ids="-".join,
)
def test_what_only_reads_comes_first_and_each_once(
    words: tuple[str, ...], names: list[str]
) -> None:
    assert names == [check.name for check in chosen(words, CHECKS)]


def test_other_nodes_take_part_in_the_full_suite() -> None:
    assert ["read", "load", "partner"] == [
        check.name for check in chosen(["full"], CHECKS, peers=True)
    ]


def test_what_a_node_excludes_runs_only_by_name() -> None:
    assert ["read"] == [check.name for check in chosen(["light"], CHECKS, exclude=["load"])]
    assert ["load"] == [check.name for check in chosen(["load"], CHECKS, exclude=["load"])]


def test_how_long_a_run_may_take() -> None:
    assert 50 == seconds_for(["light"], CHECKS.values())
    assert 170 == seconds_for(["full"], CHECKS.values())
    assert 530 == seconds_for(["full"], CHECKS.values(), peers=True)
    assert 20 == seconds_for(["burn"], CHECKS.values())


def node(tmp_path, gpus=None, **environment: str) -> Node:
    return Node(tmp_path, tmp_path, gpus, environment)


def test_what_a_node_lacks(tmp_path) -> None:
    def reason(need: str, **environment: str) -> str:
        return missing(made("x", needs=(need,)), node(tmp_path, **environment))

    assert "There is no GPU" in reason("gpu")
    assert "no RDMA device" in reason("rdma")
    assert "ib_write_bw is not on PATH: install perftest." == reason("perftest", PATH="/nowhere")
    assert "dcgmi is not on PATH" in reason("dcgm", PATH="/nowhere")
    assert "torchrun or srun" in reason("peers")

    (tmp_path / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "class/infiniband/mlx5_0").mkdir(parents=True)

    assert ["", ""] == [reason("gpu"), reason("rdma")]
    assert "" == reason("peers", WORLD_SIZE="2")
    assert "The job has no GPU." == missing(made("x", needs=("gpu",)), node(tmp_path, ()))


@pytest.mark.parametrize(
    ("environment", "peers"),
    [
        ({}, False),
        ({"WORLD_SIZE": "1"}, False),
        ({"SLURM_NTASKS": "8"}, True),
        ({"WORLD_SIZE": "x"}, False),
    ],
    ids=str,
)
def test_whether_other_nodes_take_part(environment: dict[str, str], peers: bool) -> None:
    assert peers == has_peers(environment)
