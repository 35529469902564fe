"""How right peerwatch-check is on this machine: faults put into a node, and runs without one.

python -m bench.checks [--clean N] [--nodes N] [--folder FOLDER] [--only CHECK ...] [--unhurried]

First N clean runs of the light suite, with nothing tuned and whatever else runs on the machine:
the spread of what they measured, and how many warned or failed. They are shared out over nodes that
run side by side; what later runs of a node are compared with are its own earlier ones. A folder
that is kept holds each run as soon as it ended, and the next call goes on there. At the lowest
priority, which checks have, few come to their end on a busy machine: ``--unhurried`` keeps that of
this process. Then each fault, with peers that measure what this machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks_faults import FAULTS, UNHURRIED, FaultyNode, can_mount
from checks_program import Program
from peerwatch_common.check_results.record import parse_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_common.check_results.record import Record

_PEERS = 5
_PEERS_OF = ("memory_copy", "disk_write_read")
_BAD = frozenset({"warn", "fail"})


def clean_runs(
    folder: Path, count: int, nodes: int, what: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Run checks so many times, as far as they were not; print what came of all."""
    with ThreadPoolExecutor(nodes) as pool:
        shares = [count // nodes + (number < count % nodes) for number in range(nodes)]
        for each in [
            pool.submit(_run_node, folder / f"node{number}", share, what, environment)
            for number, share in enumerate(shares)
        ]:
            each.result()
    _report(folder)


def _run_node(
    folder: Path, count: int, what: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Run them on one node until there are so many runs."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "runs.jsonl"
    done = len(log.read_text().splitlines()) if log.exists() else 0
    program = Program(folder)
    program.settings["checks"] = {"mounts": {"paths": ["/proc"]}}
    for _ in range(done, count):
        begun = time.monotonic()
        status, records, _err = program.run(*what, **environment)
        run = {
            "status": status,
            "seconds": round(time.monotonic() - begun, 1),
            "load": round(os.getloadavg()[0], 1),
            "records": [each.to_json() for each in records],
        }
        with log.open("a") as file:
            file.write(json.dumps(run) + "\n")


def _report(folder: Path) -> None:
    runs: list[tuple[str, dict[str, Any]]] = [
        (f"{log.parent.name} run {number}", json.loads(line))
        for log in sorted(folder.glob("node*/runs.jsonl"))
        for number, line in enumerate(log.read_text().splitlines(), 1)
    ]
    found: list[Record] = []
    accused = 0
    for name, run in runs:
        records = [parse_record(text) for text in run["records"]]
        found += records
        bad = [each for each in records if each.status in _BAD]
        accused += bool(bad)
        for each in [*bad, *(each for each in records if each.status == "error")]:
            load = f"load {run['load']}"
            print(f"  {name}, {load}: {each.status} {each.check} {each.device}: {each.message}")
    loads, seconds = ([run[key] for _, run in runs] for key in ("load", "seconds"))
    print(
        f"{len(runs)} clean runs, {accused} warned or failed; exit statuses "
        f"{dict(Counter(run['status'] for _, run in runs))}; load {min(loads)} to {max(loads)}, "
        f"median {statistics.median(loads)}; seconds {min(seconds)} to {max(seconds)}, median "
        f"{statistics.median(seconds)}"
    )
    by_value: dict[str, list[Record]] = defaultdict(list)
    for record in found:
        by_value[f"{record.check} {record.device}".strip()].append(record)
    print("| check | results | median | least | most | 3 x 1.4826 x MAD | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name, records in by_value.items():
        print(_row(name, records))


def _row(name: str, records: list[Record]) -> str:
    counts = Counter(each.status for each in records)
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    seconds = statistics.median(each.duration_seconds for each in records)
    values = [each.value for each in records if each.value and each.status != "error"]
    if not values:
        return f"| {name} | {said} | - | - | - | - | {seconds:.1f} |"
    middle = statistics.median(values)
    spread = 3 * 1.4826 * statistics.median(abs(value - middle) for value in values)
    unit = next(each.unit for each in records if each.value)
    return (
        f"| {name} | {said} | {middle:.4g} {unit} | {min(values) / middle:.0%} "
        f"| {max(values) / middle:.0%} | {spread / middle:.0%} | {seconds:.1f} |"
    )


def peers_of(folder: Path) -> list[Record]:
    """Return what a healthy peer measures: the median of some runs of this machine."""
    program = Program(folder)
    by_key: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for _ in range(_PEERS):
        for record in program.run(*_PEERS_OF)[1]:
            if record.value and record.status == "pass":
                by_key[record.check, record.device].append(record)
    return [
        replace(same[0], value=statistics.median(each.value or 0.0 for each in same))
        for same in by_key.values()
    ]


def faults(folder: Path, peers: list[Record]) -> None:
    """Put each fault into a node and print whether it is named."""
    node = FaultyNode(folder, peers)
    print("| fault | named | what is said |")
    print("|---|---|---|")
    for fault in FAULTS:
        if fault.name.endswith("full disk") and not can_mount():
            print(f"| {fault.name} | not tested | this machine lets nobody mount |")
            continue
        _status, found = node.run(fault)
        worst = [each for each in found if each.status != "pass"] or found
        named = "yes" if fault.is_named(found) else "NO"
        said = next((each for each in found if each.device == fault.device), worst[0])
        print(f"| {fault.name} | {named} | `{fault.check}` {said.status}: {said.message} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["light"], metavar="CHECK")
    parser.add_argument("--unhurried", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.clean:
            clean_runs(
                options.folder or Path(work) / "clean",
                options.clean,
                options.nodes,
                options.only,
                {"PYTHONPATH": UNHURRIED} if options.unhurried else {},
            )
        (Path(work) / "peers").mkdir()
        faults(Path(work), peers_of(Path(work) / "peers"))
