"""The light suite of active checks on this machine, beside a shell script that looks at the same.

The script runs the usual commands and decides nothing: it has no floor to compare with, no history
and no peers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.measurement import Goal, Measurement, alone, run_command
from checks_program import Program

_SCRIPT = """
set -u
nproc; cat /proc/loadavg /proc/meminfo; df -P; mount; ls /sys/class/net /sys/class/infiniband
for file in /proc/sys/kernel/*; do cat "$file"; done
dmesg | tail -n 1000 | grep -i -E 'error|xid|ecc'
dd if=/dev/zero of={file} bs=4M count=64 oflag=dsync conv=fsync
dd if={file} of=/dev/null bs=4M
dd if=/dev/zero of=/dev/null bs=64M count=64
true
"""


def measurements(_options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the wall time and the CPU time of a run."""
    with tempfile.TemporaryDirectory() as name:
        program = Program(Path(name))
        program.settings["folders"] = []
        config = Path(name) / "checks.yaml"
        config.write_text(yaml.safe_dump(program.settings))
        command = [sys.executable, "-m", "peerwatch_checks", "light", "--config", str(config)]
        script = _SCRIPT.format(file=Path(name) / "disk")
        # 0 pass, 1 warn, 2 fail, 3 skipped: a machine without GPUs skips some.
        environment = _environment()
        ours = run_command(command, (0, 1, 2, 3), environment)
        plain = run_command(["sh", "-c", script])
    yield Measurement(
        "checks, light suite", "s", ours.wall, plain.wall, "shell script", goals=(Goal(20),)
    )
    yield Measurement("checks, light suite, CPU", "s CPU", ours.cpu, plain.cpu, "shell script")


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)}


if __name__ == "__main__":
    alone(measurements)
