"""Write Slurm's topology.conf as a rules file that tells Prometheus where the nodes are.

    python3 topology_rules.py /etc/slurm/topology.conf > topology.rules.yaml

A switch with nodes is their leaf, the switch above it their pod, a block their rack:
docs/topology.md. Needs nothing but Python. Put the result beside Peerwatch's rules; run it again
when topology.conf changes, and reload Prometheus.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from pathlib import Path

HEAD = """\
# Generated from {source}: where the nodes are (docs/topology.md).
groups:
  - name: peerwatch_topology
    interval: 1m
    rules:
"""
# More would be a mistake in a range: the largest clusters have some 100,000 nodes.
MOST_NAMES = 1_000_000


def main(arguments: list[str] | None = None) -> int:
    """Print the rules; exit with 2 and one sentence if the file cannot be used."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", help="topology.conf; - reads standard input")
    parser.add_argument("--cluster", help="the label cluster of the nodes, if they have one")
    options = parser.parse_args(arguments)
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
        places = places_of(text)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {options.file}: {error}", file=sys.stderr)
        return 2
    print(rules(places, options.file, options.cluster), end="")
    return 0


def places_of(text: str) -> dict[str, dict[str, str]]:
    """Return the labels of each node: ``{"n1": {"topology_leaf": "s1", "topology_pod": "s7"}}``.

    Raises
    ------
    ValueError
        If a line is not understood, a node has two places of a kind, or no line has nodes.
    """
    nodes: dict[str, dict[str, str]] = {}
    above: dict[str, str] = {}
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if any("=" not in word for word in words):
            raise ValueError(f"line {number}: expected NAME=VALUE, not {line.strip()[:80]!r}")
        values = {name.lower(): value for name, value in (word.split("=", 1) for word in words)}
        kind = "topology_rack" if "blockname" in values else "topology_leaf"
        place = values.get("blockname") or values.get("switchname")
        if not place:
            continue
        for switch in expand(values.get("switches", "")):
            above[switch] = place
        for node in expand(values.get("nodes", "")):
            if nodes.setdefault(node, {}).setdefault(kind, place) != place:
                first = nodes[node][kind]
                raise ValueError(f"line {number}: {node} is in {first} and in {place}")
    if not nodes:
        raise ValueError("no line with SwitchName or BlockName has Nodes")
    for labels in nodes.values():
        if labels.get("topology_leaf") in above:
            labels["topology_pod"] = above[labels["topology_leaf"]]
    return nodes


def expand(hosts: str) -> list[str]:
    """Return the names of a host list such as ``gpu[001-003,7],login``."""
    if set("[]") & set(re.sub(r"\[[^\[\]]*\]", "", hosts)):
        raise ValueError(f"brackets that do not match in {hosts!r}")
    names: list[str] = []
    for pattern in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hosts):
        parts = re.split(r"\[([^\]]*)\]", pattern)
        # Every second part was in brackets.
        choices = [_numbers(part) if i % 2 else [part] for i, part in enumerate(parts)]
        if math.prod(map(len, choices)) > MOST_NAMES:
            raise ValueError(f"more than {MOST_NAMES} names in {pattern!r}: is a range wrong?")
        names += ["".join(chosen) for chosen in itertools.product(*choices)]
    return names


def _numbers(ranges: str) -> list[str]:
    found: list[str] = []
    for one_range in ranges.split(","):
        first, _, last = one_range.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise ValueError(f"expected numbers such as 001-016, not {one_range!r}")
        count = int(last or first) - int(first) + 1
        if not 1 <= count <= MOST_NAMES:
            raise ValueError(f"range {one_range!r} has {count} numbers, not 1 to {MOST_NAMES}")
        found += [str(int(first) + i).zfill(len(first)) for i in range(count)]
    return found


def rules(nodes: dict[str, dict[str, str]], source: str, cluster: str | None) -> str:
    """Return a rules file with one series for each node."""
    lines = [HEAD.format(source=source)]
    for node, places in nodes.items():
        labels = {"node": node, **places} | ({"cluster": cluster} if cluster else {})
        # JSON is YAML, whatever characters a name has.
        rule = {"record": "node_topology_info", "expr": "vector(1)", "labels": labels}
        lines.append(f"      - {json.dumps(rule)}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
