"""What a node lacks is said in words, and skips the check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.check import NEEDS, Need, checks
from peerwatch_checks.run.needs import Node, missing

if TYPE_CHECKING:
    from pathlib import Path

CHECK = checks()["filesystem_space"]
SAID = {
    "gpu": "There is no GPU of NVIDIA's driver",
    "torch": "torch is not installed: pip install torch.",
    "numpy": "numpy is not installed: pip install numpy.",
    "root": "It needs root.",
    "perftest": "ib_write_bw is not on PATH: install perftest.",
    "dcgm": "dcgmi is not on PATH: install DCGM.",
    "rdma": "There is no RDMA device",
    "peers": "It needs other nodes: start it with torchrun or srun.",
}


def bare(folder: Path, **environment: str) -> Node:
    return Node(folder, folder, None, {"PATH": str(folder), **environment})


@pytest.mark.parametrize("need", NEEDS)
def test_a_node_that_has_nothing_is_told_what_it_lacks(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert missing(replace(CHECK, needs=(need,)), bare(tmp_path)).startswith(SAID[need])


def test_one_node_of_a_job_has_no_peers(tmp_path: Path) -> None:
    check = replace(CHECK, needs=("peers",))

    assert missing(check, bare(tmp_path, WORLD_SIZE="1")).startswith(SAID["peers"])
    assert missing(check, bare(tmp_path, WORLD_SIZE="3")) == ""
