"""What the recording rules cost a real Prometheus, rule by rule, for each node.

    python -m bench.rules [--rules recording|slow] [--nodes 200] [--json]

An exposition of the real exporter, of its healthy demo node with 8 GPUs and 8 NICs, is written for
that many nodes, scrape by scrape, and every rule's expression is asked as the rule manager asks it:
at one instant, all nodes at once. Cost per node and second follows from how often the group runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import usage
from detector.reading.remote_write import Written, write
from detector.reading.servers import prometheus
from peerwatch_demo.stack.servers import Server, Stack, free_ports

RULES = Path(__file__).parents[2] / "rules"
# A process's CPU time is counted in hundredths of a second.
_LEAST_CPU = 0.5


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A file of recording rules and the scrapes that it is made for.

    Parameters
    ----------
    file
        Its path.
    scrape_seconds
        Time between two scrapes.
    scrapes
        How many fill the windows of its rates, and a little more.
    """

    file: Path
    scrape_seconds: int
    scrapes: int


SETS = {
    "recording": RuleSet(RULES / "recording.rules.yaml", 1, 20),
    "slow": RuleSet(RULES / "slow" / "slow.rules.yaml", 15, 6),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one evaluation of a rule costs.

    Parameters
    ----------
    rule
        The recorded series.
    every_seconds
        How often its group runs.
    raw_series
        Series of one node that its expression reads.
    microseconds
        The server's CPU time for each node.
    """

    rule: str
    every_seconds: float
    raw_series: int
    microseconds: float


def measure(directory: Path, nodes: int, which: RuleSet) -> list[Cost]:
    """Fill a server with the series of nodes and ask every rule's expression."""
    rules = list(_rules(which.file))
    with Stack(directory) as stack:
        series = [
            sample for sample in _scraped(stack) if any(sample[0] in text for _, _, text in rules)
        ]
        server = prometheus(stack)
        end = int(time.time())
        write(server.url, _written(series, nodes, end, which))
        return [
            Cost(
                name,
                every,
                _read_by(text, series),
                1e6 * _seconds(server, text, end, nodes) / nodes,
            )
            for name, every, text in rules
        ]


def _rules(file: Path) -> Iterator[tuple[str, float, str]]:
    for group in yaml.safe_load(file.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["record"], float(group["interval"].removesuffix("s")), rule["expr"]


def _scraped(stack: Stack) -> list[tuple[str, dict[str, str], float]]:
    """Return name, labels and value of every series of a demo node once its rates are there."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "peerwatch_demo.exporter", "healthy"]
    server = stack.start(
        "exporter", [*command, "--listen", f"127.0.0.1:{port}"], ready=f"{url}/-/ready"
    )
    found: list[tuple[str, dict[str, str], float]] = []
    deadline = time.monotonic() + 60
    while not {"host_job_info", "gpu_job_info"} <= {name for name, _, _ in found}:
        if time.monotonic() > deadline:
            raise RuntimeError(f"The demo node runs no job; its exporter is process {server.pid}.")
        time.sleep(1)
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    return found


def _written(
    series: Sequence[tuple[str, dict[str, str], float]], nodes: int, end: int, which: RuleSet
) -> Iterator[Written]:
    times = (end - which.scrape_seconds * np.arange(which.scrapes)[::-1]) * 1000
    for node in range(nodes):
        scraped = {"job": "peerwatch-exporter", "node": f"gpu-node-{node:05d}"}
        for name, labels, value in series:
            values = value + np.arange(which.scrapes, dtype=np.float64)
            yield Written({"__name__": name, **labels, **scraped}, times, values)


def _read_by(text: str, series: Sequence[tuple[str, dict[str, str], float]]) -> int:
    """Count the series of a node that an expression names."""
    return sum(name in text for name, _, _ in series)


def _seconds(server: Server, text: str, end: int, nodes: int) -> float:
    """Return the CPU seconds of the server for one evaluation; the mean of as many as it takes."""
    asked = urllib.parse.urlencode({"query": f"count({text})", "time": end})
    url = f"{server.url}/api/v1/query?{asked}"
    _ask(url, nodes)
    before, spent, times = usage(server.process.pid), 0.0, 0
    while spent < _LEAST_CPU:
        _ask(url, nodes)
        times += 1
        spent = usage(server.process.pid).cpu_since(before)
    return spent / times


def _ask(url: str, nodes: int) -> None:
    with urllib.request.urlopen(url, timeout=300) as answer:
        (found,) = json.load(answer)["data"]["result"]
    if int(found["value"][1]) % nodes:
        raise RuntimeError(f"{url}: {found['value'][1]} series of {nodes} nodes.")


def table(costs: Sequence[Cost]) -> str:
    """Return the results for people, in Markdown."""
    lines = [
        "| recorded series | every, s | raw series per node | us per node and evaluation |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{cost.rule}` | {cost.every_seconds:g} | {cost.raw_series} | {cost.microseconds:.0f} |"
        for cost in costs
    ]
    total = sum(cost.microseconds / cost.every_seconds for cost in costs)
    return "\n".join([*lines, "", f"All of them: {total:.0f} us of CPU per node and second."])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", choices=SETS, default="recording", help="which (recording)")
    parser.add_argument("--nodes", type=int, default=200, help="nodes (200)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as directory:
        costs = measure(Path(directory), options.nodes, SETS[options.rules])
    print(json.dumps([asdict(cost) for cost in costs], indent=2) if options.json else table(costs))


if __name__ == "__main__":
    main()
