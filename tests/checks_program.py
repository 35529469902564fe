"""Runs ``peerwatch-check`` as its users do, with checks that misbehave as the site's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from peerwatch_common.check_results.record import Record, parse_record

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULTY = Path(__file__).parent / "checks" / "faulty"


class Program:
    """The program with a spool folder, a lock and settings of its own.

    Parameters
    ----------
    folder
        Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.lock = folder / "lock"
        self.settings: dict[str, Any] = {
            "node": "n1",
            "spool": str(self.spool),
            "folders": [str(FAULTY)],
            # The machine of a test is busy.
            "busy": {"cpu_ratio": 1.0, "slurm": False},
            "paths": {"lock": str(self.lock)},
        }

    def start(
        self, *arguments: str, before: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """Start it, by the command ``before`` if there is one."""
        config = self.folder / "checks.yaml"
        config.write_text(yaml.safe_dump(self.settings))
        command = [sys.executable, "-m", "peerwatch_checks", *arguments, "--config", str(config)]
        command[:0] = before
        kept = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, list[Record], str]:
        """Return exit status, records and what it wrote to standard error."""
        process = self.start(*arguments, "--json", **environment)
        out, err = process.communicate(timeout=600)
        return process.returncode, [parse_record(line) for line in out.splitlines()], err

    def spooled(self, check: str) -> list[dict[str, Any]]:
        """Return what the spool folder holds of a check."""
        text = (self.spool / f"{check}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]
