"""The whole loop without a person: a fault, and the job trains on without the node.

A real training job under a real Slurm where there is one, otherwise under a driver of processes;
the detector, Prometheus with the shipped rules, Alertmanager with the shipped routes, and the
responder.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerwatch_demo.cluster.faults import FAULTS
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.cluster.settings import Settings
from peerwatch_demo.response.cluster import use_slurm
from peerwatch_demo.response.run import RespondingDemo
from peerwatch_demo.stack.console import Console

pytest.importorskip("torch", reason="the training job needs the extra [train]")
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("slurm_steps")]

STOPPED = next(fault for fault in FAULTS if fault.name == "stopped_process")


@pytest.fixture
def folder() -> Iterator[Path]:
    # Slurm's sockets are in it: the path of one may have 108 bytes, and pytest's own are long.
    with tempfile.TemporaryDirectory(prefix="peerwatch-loop-") as folder:
        yield Path(folder)


def test_a_stopped_rank_is_replaced_and_the_job_trains_on(folder: Path) -> None:
    said = io.StringIO()
    settings = Settings(nodes=3, quiet_seconds=10, page_seconds=900, second_page_seconds=5)
    demo = RespondingDemo(
        *(settings, STOPPED, "node-1", Place(Path(__file__).parents[2]), folder),
        Console(said, {}),
        namespaces=False,
        slurm=not use_slurm(namespaces=False),
        learns=False,
    )
    right = demo.run()
    assert right, said.getvalue()
    happened = [each.what for each in demo.chain]
    order = ["fault injected", "alert fires", "decision"]
    assert [each for each in happened if each in order] == order, said.getvalue()
    # Alertmanager groups for some seconds, and Slurm starts a job again in its own time.
    assert {"page", "training goes on"} <= set(happened[happened.index("decision") :])
    # The job says itself what is wrong.
    assert "diagnosis" in happened, said.getvalue()
