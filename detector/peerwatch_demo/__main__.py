"""Entry point: read the environment, choose the fault, run, clean up, exit code.

0: one page came and it named the faulty node. 1: it did not, or something broke. 2: wrong use.
130 and 143: ended by Ctrl-C or by SIGTERM.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from peerwatch_demo.cluster.cluster import node_names
from peerwatch_demo.cluster.faults import Fault, FaultError, choose_fault, choose_node
from peerwatch_demo.cluster.namespaces import why_unavailable
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.cluster.settings import Patience, Settings
from peerwatch_demo.response.cluster import use_slurm
from peerwatch_demo.response.run import RespondingDemo
from peerwatch_demo.run import Demo
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.signals import catch_signals, exit_code

ROOT = Path(__file__).resolve().parents[2]
# Prometheus' data, checkpoints and logs: some 50 MB, and chosen room for a run that is held.
_ROOM_BYTES = 200e6


def main(environment: Mapping[str, str]) -> int:
    """Run the demo and return the exit code."""
    settings = Settings.from_environment(environment)
    reason = "NO_NAMESPACES is set" if settings.no_namespaces else why_unavailable()
    try:
        fault = choose_fault(settings.fault, no_namespaces=reason)
    except FaultError as error:
        print(f"peerwatch demo: {error}", file=sys.stderr)
        return 2
    console = Console(sys.stdout, environment)
    no_slurm = use_slurm(namespaces=reason is None)
    console.text(introduction(settings, fault, reason, no_slurm))
    faulty = choose_node(node_names(settings.nodes), settings.seed)

    def run(directory: Path) -> bool:
        if settings.respond:
            return RespondingDemo(
                *(settings, fault, faulty, Place(ROOT), directory, console),
                namespaces=reason is None,
                slurm=not no_slurm,
                learns=False,
            ).run()
        demo = Demo(
            settings, fault, faulty, Place(ROOT), directory, console, namespaces=reason is None
        )
        return demo.run()

    return carry_out(run, console, keep=settings.hold, room_bytes=_ROOM_BYTES)


def carry_out(
    run: Callable[[Path], bool], console: Console, *, keep: bool, room_bytes: float
) -> int:
    """Run a demo in a directory of its own and return the exit code.

    Parameters
    ----------
    run
        Given the directory, runs the demo and says whether all was right.
    console
        The terminal.
    keep
        Keep the directory, also when all was right.
    room_bytes
        What the demo writes there at most.
    """
    catch_signals()
    directory = Path(tempfile.mkdtemp(prefix="peerwatch-demo-"))
    free = shutil.disk_usage(directory).free
    if free < room_bytes:
        # Processes without room for their logs and data fail in ways that tell nothing.
        directory.rmdir()
        console.text(
            f"FAILED: {directory.parent} has {free / 1e6:,.0f} MB free; this demo needs "
            f"{room_bytes / 1e6:,.0f} MB. Name another folder: TMPDIR=/path make demo",
            "bad",
        )
        return 1
    code = 1
    try:
        code = exit_code(lambda: 0 if run(directory) else 1, console)
    except BrokenPipeError:
        # Nobody reads any more. Python would fail once more when it flushes the stream at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        if code == 1 or keep:
            console.text(f"logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return code


def introduction(
    settings: Settings, fault: Fault, no_namespaces: str | None, no_slurm: str = ""
) -> str:
    """Return what the terminal shows first."""
    what = "one training job, one faulty node, one page that must name it."
    launcher = ""
    if settings.respond:
        what = "one training job, one faulty node, and nobody who must do anything."
        by = f"a small driver (no Slurm: {no_slurm})" if no_slurm else "a real Slurm"
        launcher = f"  job        run by {by}; the responder may take a node out of it\n"
    where = (
        f"{settings.nodes} network namespaces on this machine"
        if no_namespaces is None
        else f"{settings.nodes} groups of processes on this machine "
        f"(no network namespaces: {no_namespaces})"
    )
    return (
        f"Peerwatch demo: {what}\n"
        f"  nodes      {where}\n"
        f"  fault      {fault.name}: {fault.summary}; which node is drawn by lot, and the "
        "detector does not know\n"
        f"{launcher}"
        f"  shortened  {Patience().summary}\n"
    )


if __name__ == "__main__":
    sys.exit(main(os.environ))
