"""``peerwatch-check full`` on the GPU, and what it says while somebody uses the GPU."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from checks_program import Program
from gpu.job import need_torch
from gpu.part import PartFailedError, Result

if TYPE_CHECKING:
    from gpu.part import Node
    from peerwatch_common.check_results.record import Record

_HOLDER = """
import sys, torch
held = torch.ones(1 << 28, device="cuda")
torch.cuda.synchronize()
print("holds", flush=True)
sys.stdin.readline()
"""


def run(node: Node) -> Result:
    """Run the checks of a single node on the idle GPU, then one of them on a GPU that is in use."""
    need_torch(node)
    result = Result("Active checks")
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder))
        # Those that misbehave on purpose are for the tests.
        del program.settings["folders"]
        _status, records, errors = program.run("full")
        if not records:
            raise PartFailedError(f"peerwatch-check full gave no record: {errors[-2000:]}")
        result.table(("check", "device", "status", "message", "took, s"), map(_row, records))
        result.failures += [
            f"{each.check} {each.device}: {each.message}"
            for each in records
            if each.status == "error"
        ]
        if not any(each.check == "matrix_product" and "gpu" in each.device for each in records):
            result.failures.append("No product of matrices was computed on a GPU.")
        in_use = _in_use(program)
    result.lines += ["", "While another process has 1 GiB of the GPU's memory:"]
    result.table(("check", "device", "status", "message", "took, s"), map(_row, in_use))
    if {each.status for each in in_use} != {"skipped"}:
        result.failures.append(f"A GPU that is in use was tested: {in_use}.")
    return result


def _in_use(program: Program) -> list[Record]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        _status, records, _errors = program.run("gpu_memory_copy")
        holder.communicate("")
    return records


def _row(record: Record) -> tuple[str, ...]:
    return (
        record.check,
        record.device or "-",
        record.status,
        record.message.replace("|", "/"),
        f"{record.duration_seconds:.1f}",
    )
