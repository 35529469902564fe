"""All benchmarks in one table: ``python -m bench [--only NAME,...] [--large] [--compare FILE]``.

Each is a file of ``bench/rows`` and runs in a process of its own, one after the other. Adding one
is adding a file that yields measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import bench.rows
from bench.comparison import comparison
from bench.measurement import Measurement, add_options, from_json
from bench.table import growth_of, table_of

VERSION = 1
# Of one benchmark; with --large sizes a server is filled for minutes.
_SECONDS, _LARGE_SECONDS = 600, 3600


def names() -> list[str]:
    """Return the names of all benchmarks, in the order in which they run."""
    return sorted(each.name for each in pkgutil.iter_modules(bench.rows.__path__))


def run(name: str, options: argparse.Namespace) -> tuple[list[Measurement], str]:
    """Run one benchmark; return what it measured, and why it failed if it did."""
    command = [sys.executable, "-m", f"bench.rows.{name}", "--json"]
    command += [f"--seconds={options.seconds}", *(["--large"] if options.large else [])]
    limit = _LARGE_SECONDS if options.large else _SECONDS
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return [], f"did not end within {limit} s"
    found = [from_json(line) for line in done.stdout.splitlines() if line.startswith('{"what"')]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return found, f"exit status {done.returncode}: {last[:300]}"
    return found, ""


def machine() -> str:
    """Return what the numbers were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return (
        f"{cores} cores of {model}, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"load {load:.0f}"
    )


def save(path: Path, measurements: Sequence[Measurement], where: str) -> None:
    """Write a run, as ``saved`` reads it."""
    document = {
        "version": VERSION,
        "machine": where,
        "measurements": [asdict(each) for each in measurements],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def saved(path: Path) -> list[Measurement]:
    """Return the measurements of a saved run.

    Raises
    ------
    SystemExit
        If the file is missing or none that this program wrote.
    """
    try:
        document = json.loads(path.read_text())
        if document["version"] != VERSION:
            raise ValueError(f"has version {document['version']}, not {VERSION}")
        return [from_json(json.dumps(each)) for each in document["measurements"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path}: no saved run ({type(error).__name__}: {error}); give a file that "
            "`make bench OUTPUT=FILE` wrote."
        ) from error


def main() -> int:
    """Run what was asked for; 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--only", help=f"some of {', '.join(names())}")
    parser.add_argument("--output", type=Path, help="save the run here, as JSON")
    parser.add_argument("--compare", type=Path, help="a saved run to compare with, ratios only")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else names()
    if unknown := sorted(set(chosen) - set(names())):
        parser.error(f"--only {','.join(unknown)}: there are {', '.join(names())}")
    before = saved(options.compare) if options.compare else None
    where, found, failed = machine(), [], []
    for name in chosen:
        began = time.monotonic()
        measured, why = run(name, options)
        found += measured
        failed += [f"{name}: {why}"] if why else []
        said = why or f"{len(measured)} measurements"
        sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s, {said}\n")
    parts = [f"On {where}.", table_of(found), growth_of(found)]
    if before is not None:
        parts.append(f"Beside {options.compare}:\n\n{comparison(before, found)}")
    parts += [f"NOT MEASURED: {each}" for each in failed]
    print("\n\n".join(filter(None, parts)))
    if options.output:
        save(options.output, found, where)
        print(f"\nSaved as {options.output}; compare a later run with COMPARE={options.output}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
