"""What the exporter costs on a node with 8 GPUs and 8 NICs, next to node_exporter.

    make bench
    python -m bench.exporter [--seconds 30] [--json]

Both programs run on the same file tree (64 CPUs, 1,000 processes) and are scraped as Prometheus
does, at the same time, every second; the exporter without single NVLinks then takes the other's
place, since no node runs two. GPUs and network drivers are made up, in Python: their cost counts
as the exporter's; what the GPUs' is at least stands in a row of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import yaml

from bench.exporter_node import write_gpus
from bench.host_tree import HostTree
from bench.processes import Usage, usage
from bench.rendering import Rendering, compare
from bench.scraping import Scraper, scrape_together
from bench.simulated_driver import seconds_per_second
from peerwatch_demo.stack.servers import Process, Stack, find_program, free_ports

_ROOT = Path(__file__).parents[2]
# By then a process that does nothing is read as rarely as it ever is.
_WARM_UP_SECONDS = 40
# What reads the same things as this exporter's collectors of the host and of RDMA ports.
_COMPARABLE = (
    "cpu",
    "diskstats",
    "edac",
    "infiniband",
    "loadavg",
    "meminfo",
    "netdev",
    "netstat",
    "pressure",
    "sockstat",
    "stat",
)
# Of the exporter, by the name of the column.
_SETTINGS: dict[str, dict[str, dict[str, object]]] = {
    "peerwatch-exporter": {},
    "without single NVLinks": {"nvlink": {"per_link": False}},
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one program cost; times in seconds, sizes in bytes."""

    program: str
    series: int
    cpu_per_second: float
    cpu_of_children_per_second: float
    resident: int
    proportional: int
    exposition: int
    exposition_compressed: int
    scrape_p50: float
    scrape_p99: float
    simulated_driver_per_second: float = 0.0


def measure(directory: Path, seconds: int) -> tuple[list[Row], Rendering]:
    """Return what each program cost, and what rendering costs.

    node_exporter's row, the last, is from the time beside the first.
    """
    tree = HostTree(directory / "node").build()
    write_gpus(tree)
    (tree.root / "kmsg").write_text("")
    simulated = seconds_per_second(tree)
    rows = []
    for name, settings in _SETTINGS.items():
        with Stack(directory) as stack:
            ours, theirs, exposition = _side_by_side(stack, tree, settings, seconds)
        rows.append((replace(ours, program=name, simulated_driver_per_second=simulated), theirs))
        if len(rows) == 1:
            rendering = compare(exposition)
    return [*(ours for ours, _ in rows), rows[0][1]], rendering


def _side_by_side(
    stack: Stack, tree: HostTree, settings: dict[str, dict[str, object]], seconds: int
) -> tuple[Row, Row, bytes]:
    """Return what exporter and node_exporter cost side by side, and the former's exposition."""
    ports = free_ports(2)
    programs = {
        "peerwatch-exporter": start_exporter(stack, tree, ports[0], settings),
        "node_exporter": start_node_exporter(stack, tree, ports[1]),
    }
    stack.start("counters", _python("bench.moving_counters", str(tree.root)), environment=_env())
    plain = [Scraper(port) for port in ports]
    scrapers = [*plain, Scraper(ports[0], "/metrics/fast")]
    scrape_together(scrapers, _WARM_UP_SECONDS)
    for scraper in scrapers:
        scraper.seconds.clear()
    before = [usage(process.pid) for process in programs.values()]
    start = time.monotonic()
    scrape_together(scrapers, seconds)
    elapsed = time.monotonic() - start
    complain_if_incomplete(plain[0].exposition.decode(), tree.gpus)
    after = [usage(process.pid) for process in programs.values()]
    ours, theirs = (
        _row(name, *measured, elapsed)
        for name, *measured in zip(programs, plain, before, after, strict=True)
    )
    return ours, theirs, plain[0].exposition


def complain_if_incomplete(exposition: str, gpus: int) -> None:
    """Refuse to report the cost of an exposition that lacks something.

    Raises
    ------
    RuntimeError
        If a collector failed or GPUs are missing.
    """
    errors = re.findall(
        r"^exporter_collector_error_info\{(.*)\} 1(?:\.0)?$", exposition, re.MULTILINE
    )
    # What this machine does not have costs nothing anywhere.
    failed = [labels for labels in errors if 'error="source_missing"' not in labels]
    present = len(re.findall(r"^gpu_present\{.*\} 1(?:\.0)?$", exposition, re.MULTILINE))
    if failed or present != gpus:
        raise RuntimeError(
            f"The exposition has {present} of {gpus} GPUs and these errors: {failed}."
        )


def _row(name: str, scraper: Scraper, before: Usage, after: Usage, elapsed: float) -> Row:
    return Row(
        program=name,
        series=scraper.series,
        cpu_per_second=after.cpu_since(before) / elapsed,
        cpu_of_children_per_second=after.children_since(before) / elapsed,
        resident=after.rss_bytes,
        proportional=after.pss_bytes,
        exposition=len(scraper.exposition),
        exposition_compressed=scraper.wire_bytes,
        scrape_p50=scraper.percentile(0.5),
        scrape_p99=scraper.percentile(0.99),
    )


def start_exporter(
    stack: Stack,
    tree: HostTree,
    port: int,
    more: dict[str, dict[str, object]],
    *,
    ready: bool = True,
) -> Process:
    """Start the exporter on a tree, with more settings; wait for it to be ready, or not."""
    config = stack.directory / f"exporter-{port}.yaml"
    paths = {"procfs": tree.procfs, "sysfs": tree.sysfs, "kmsg": tree.root / "kmsg"}
    settings = {
        "listen": {"address": "127.0.0.1", "port": port},
        "paths": {name: str(path) for name, path in paths.items()},
        **more,
    }
    config.write_text(yaml.safe_dump(settings))
    return stack.start(
        f"exporter-{port}",
        _python("bench.exporter_node", str(tree.root), str(config)),
        environment=_env(),
        ready=f"http://127.0.0.1:{port}/-/ready" if ready else None,
    )


def start_node_exporter(stack: Stack, tree: HostTree, port: int, *, ready: bool = True) -> Process:
    """Start node_exporter on a tree, with what can be compared; wait for it to be ready, or not."""
    return stack.start(
        "node_exporter",
        [
            find_program("prometheus-node-exporter", "node_exporter"),
            f"--web.listen-address=127.0.0.1:{port}",
            f"--path.procfs={tree.procfs}",
            f"--path.sysfs={tree.sysfs}",
            "--collector.disable-defaults",
            "--no-collector.netdev.netlink",
            *(f"--collector.{name}" for name in _COMPARABLE),
        ],
        ready=f"http://127.0.0.1:{port}/metrics" if ready else None,
    )


def _python(module: str, *arguments: str) -> list[str]:
    return [find_program("python"), "-m", module, *arguments]


def _env() -> dict[str, str]:
    paths = [str(_ROOT / name) for name in ("tests", "exporter", "detector")]
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths)}


def table(rows: list[Row], rendering: Rendering) -> str:
    """Return the results for people, in Markdown; the ratio is the first program to the last."""
    names = [row.program for row in rows]
    lines = [
        f"| | {' | '.join(names)} | {names[0]} / {names[-1]} |",
        "|---" * (len(rows) + 2) + "|",
        _line("series on /metrics", [row.series for row in rows], "{:.0f}"),
        _line("CPU, ms per second", [row.cpu_per_second for row in rows], "{:.1f}", 1e3),
        _line(
            "of it child processes (driver)",
            [row.cpu_of_children_per_second for row in rows],
            "{:.1f}",
            1e3,
        ),
        _line(
            "of it the simulated driver's answers, at least",
            [row.simulated_driver_per_second for row in rows],
            "{:.1f}",
            1e3,
        ),
        _line(
            "CPU, us per series and second",
            [row.cpu_per_second / row.series for row in rows],
            "{:.1f}",
            1e6,
        ),
        _line("resident, MiB (RSS)", [row.resident for row in rows], "{:.1f}", 2**-20),
        _line("resident, MiB (PSS)", [row.proportional for row in rows], "{:.1f}", 2**-20),
        _line("exposition, KiB", [row.exposition for row in rows], "{:.0f}", 2**-10),
        _line(
            "exposition, KiB, gzip", [row.exposition_compressed for row in rows], "{:.0f}", 2**-10
        ),
        _line("answer, ms, median", [row.scrape_p50 for row in rows], "{:.1f}", 1e3),
        _line("answer, ms, 99th percentile", [row.scrape_p99 for row in rows], "{:.1f}", 1e3),
        "",
        f"Rendering {rendering.series} series: {rendering.ours * 1e3:.2f} ms of CPU; "
        f"prometheus_client's generate_latest {rendering.prometheus_client * 1e3:.2f} ms "
        f"({rendering.ratio:.1f} times).",
    ]
    return "\n".join(lines)


def _line(what: str, values: list[float], form: str, scale: float = 1) -> str:
    cells = " | ".join(form.format(value * scale) for value in values)
    return f"| {what} | {cells} | {f'{values[0] / values[-1]:.2f}' if values[-1] else '-'} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="how long it measures (30)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as directory:
        rows, rendering = measure(Path(directory), options.seconds)
    if options.json:
        result = {"programs": [asdict(row) for row in rows], "rendering": asdict(rendering)}
        print(json.dumps(result, indent=2))
    else:
        print(table(rows, rendering))


if __name__ == "__main__":
    main()
