"""The training job that somebody else starts, and starts again: its file, and who starts it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from peerwatch_demo.cluster.nodes import Node, Place, marks, rank_environment
from peerwatch_demo.stack.process import free_ports

# Chosen: every five seconds of healthy training, so that little is done twice.
CHECKPOINT_EVERY = 25
# Of the job, which each need a port of their own: chosen, far more than a demo has.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Where the job's files are, in a folder that all nodes see.

    Parameters
    ----------
    folder
        The folder; exists.
    """

    folder: Path

    @property
    def job(self) -> Path:
        """What ``rank.py`` reads."""
        return self.folder / "job.json"

    @property
    def checkpoint(self) -> Path:
        """What training goes on from."""
        return self.folder / "checkpoint.pt"

    @property
    def first_rank(self) -> Path:
        """Holds the path of rank 0's log."""
        return self.folder / "first-rank"

    def write(
        self,
        nodes: Sequence[Node],
        place: Place,
        *,
        namespaces: bool,
        environment: Mapping[str, str],
    ) -> None:
        """Write the job's file."""
        command = [str(place.script), "--checkpoint", str(self.checkpoint), "--resume"]
        content = {
            "demo": os.getpid(),
            "command": [*command, "--checkpoint-every", str(CHECKPOINT_EVERY)],
            "ports": free_ports(_ATTEMPTS),
            "first_rank": str(self.first_rank),
            "environment": {**rank_environment(place, namespaces=namespaces), **environment},
            "nodes": {
                node.name: {
                    "address": node.address,
                    "folder": str(node.directory),
                    "environment": {
                        **marks(node),
                        "PEERWATCH_HEARTBEAT_DIR": str(node.directory / "heartbeat"),
                    },
                }
                for node in nodes
            },
        }
        self.job.write_text(json.dumps(content))


class Launcher(Protocol):
    """Runs the job, is told by the responder, and starts the job again."""

    @property
    def name(self) -> str:
        """What runs the job, for a person."""

    def start(self) -> str:
        """Start the job; return its id, as alerts name it."""

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that the job runs on now; empty: it does not."""

    def settings(self) -> Mapping[str, Any]:
        """Return what the responder is told of it: cluster, actions and what a rule does."""

    def proof(self, node: str) -> str:
        """Return its own word that a node is out; empty: it is not."""
