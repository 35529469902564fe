"""A training job on the GPU, with the hook, and an exporter that reads what its ranks say."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import peerwatch_exporter
from gpu.part import PATIENCE_SECONDS, PartFailedError, PartSkippedError, python, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu.part import Exporter, Node

JOB_ID = "on-a-gpu"
_PROGRAMS = Path(__file__).parent / "programs"
_HOOK = Path(peerwatch_exporter.__file__).parent / "hook"
# So that a hang is seen soon; no collector runs more often than each second.
_RAS_SECONDS = 5.0


def need_torch(node: Node) -> None:
    """Raise PartSkippedError where there is no GPU on which torch computes."""
    if node.simulated:
        raise PartSkippedError("a simulated driver computes nothing")
    try:
        import torch
    except ImportError as error:
        raise PartSkippedError(f"{error.name} is not installed") from error
    if not torch.cuda.is_available():
        raise PartSkippedError("torch finds no CUDA")


@dataclass(frozen=True)
class Rank:
    """A rank of the job, which says on lines of JSON what it does, and goes on when told.

    Parameters
    ----------
    process
        Of the rank.
    errors
        The file that has its standard error.
    """

    process: subprocess.Popen[str]
    errors: Path

    def said(self, what: str) -> Any:
        """Wait for the line with this key, and return its value.

        Raises
        ------
        PartFailedError
            If the rank ends first.
        """
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{") and what in (said := json.loads(line)):
                return said[what]
        raise PartFailedError(
            f"The rank ended with status {self.process.wait(PATIENCE_SECONDS)} before it said "
            f"{what!r}: {self.errors.read_text()[-2000:]}"
        )

    def tell(self, what: str) -> None:
        """Send a line to the rank."""
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()


@dataclass(frozen=True)
class Job:
    """The job's ranks, and the exporter of their node."""

    ranks: list[Rank]
    exporter: Exporter


@contextmanager
def training(program: str, *, ranks: int = 1, **environment: str) -> Iterator[Job]:
    """Run a file of ``programs`` as the ranks of a job, until the block ends.

    NCCL refuses two ranks on one GPU of a host, so each rank says that its host is another one;
    they talk over sockets then, as between nodes.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        heartbeats = folder / "heartbeats"
        heartbeats.mkdir()
        config = folder / "exporter.yaml"
        settings = {
            "heartbeat": {"directory": str(heartbeats)},
            "collectives": {"ras_address": "localhost:28028", "ras_interval_seconds": _RAS_SECONDS},
        }
        config.write_text(yaml.safe_dump(settings))
        common = {key: value for key, value in os.environ.items() if "PEERWATCH" not in key} | {
            "PYTHONPATH": os.pathsep.join([str(_HOOK), os.environ.get("PYTHONPATH", "")]),
            "PEERWATCH_HEARTBEAT_DIR": str(heartbeats),
            "PEERWATCH_SPANS": "1",
            "TORCHELASTIC_RUN_ID": JOB_ID,
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "NCCL_SOCKET_IFNAME": "lo",
        }
        started = []
        for rank in range(ranks):
            errors = folder / f"rank-{rank}.err"
            with errors.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, str(_PROGRAMS / program)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    env=common
                    | {"RANK": str(rank), "LOCAL_RANK": "0", "NCCL_HOSTID": f"host-{rank}"}
                    | environment,
                )
            stack.callback(_end, process)
            started.append(Rank(process, errors))
        command = python("peerwatch_exporter", "--config", str(config))
        yield Job(started, stack.enter_context(running(command, folder / "exporter.log")))


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
