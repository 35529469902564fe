"""Entry point of the simulated fleet: read the environment, run, clean up, exit code.

0: exactly one page came about each faulty node. 1: it did not, or something broke. 2: wrong
use. 130 and 143: ended by Ctrl-C or by SIGTERM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from peerwatch_demo.__main__ import ROOT, carry_out
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.cluster.settings import Patience, Settings
from peerwatch_demo.fleet.plan import FAULTS, Plan, PlanError, fleet_size, make_plan
from peerwatch_demo.fleet.run import PAST_SECONDS, FleetDemo
from peerwatch_demo.stack.console import Console

_PICTURE = "fleet-demo.png"
# A node's past is 16 MB of text before Prometheus has it, and 10 MB then.
_ROOM_BYTES, _NODE_BYTES = 100e6, 26e6


def main(environment: Mapping[str, str]) -> int:
    """Run the demo and return the exit code."""
    settings = Settings.from_environment(environment)
    try:
        size = fleet_size(environment.get("FLEET", ""))
        plan = make_plan(size, settings.fault, settings.seed)
    except PlanError as error:
        print(f"peerwatch demo: {error}", file=sys.stderr)
        return 2
    console = Console(sys.stdout, environment)
    console.text(introduction(plan))
    picture = Path.cwd() / _PICTURE
    return carry_out(
        lambda directory: FleetDemo(plan, settings, Place(ROOT), directory, console, picture).run(),
        console,
        keep=settings.hold,
        room_bytes=_ROOM_BYTES + _NODE_BYTES * size,
    )


def introduction(plan: Plan) -> str:
    """Return what the terminal shows first."""
    jobs = ", ".join(f"{job_id} ({count} nodes)" for job_id, count in plan.jobs.items())
    several = len(plan.faults) > 1
    what = "a faulty node in each job, a page for each" if several else "one faulty node, one page"
    faults = "\n".join(
        f"  fault      {fault.name}: {FAULTS[fault.name]}{f' ({fault.job_id})' if several else ''}"
        for fault in plan.faults
    )
    return (
        f"Peerwatch demo: a simulated fleet, {what} that must name it.\n"
        f"  simulated  {len(plan.nodes)} simulated nodes with {plan.gpus} GPUs, and their last "
        f"{PAST_SECONDS / 60:g} minutes; no hardware is read\n"
        "  real       the exporter's code, Prometheus, Alertmanager, the detector, rules, routes\n"
        f"  jobs       {jobs}\n"
        f"{faults}\n"
        "             on nodes drawn by lot, and the detector does not know\n"
        f"  shortened  {Patience().summary}\n"
    )


if __name__ == "__main__":
    sys.exit(main(os.environ))
