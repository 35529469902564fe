"""The alerts' expressions on a second engine: a real VictoriaMetrics, with the unit tests' series.

promtool tests what Prometheus makes of the rules. MetricsQL differs in places that matter to rules:
ranges are open on the left, increase() counts what a series begins with, staleness is guessed. So
every block that must fire, or must not, is loaded here too, and every expression asked at the same
moments. ``for`` and ``keep_firing_for`` are vmalert's and are left out, and so are the alerts that
read what a rule recorded before, except the membership of nodes in jobs: nothing records here.
"""

from __future__ import annotations

import json
import re
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alertmanager_live import seconds
from each_case import each_case
from peerwatch_demo.stack.servers import Server, Stack, find_program, free_ports
from yaml_files import read_yaml

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests" / "rules").glob("*.test.yaml"))


def rules_of(file: Path) -> list[dict[str, Any]]:
    """Return the rules of a file."""
    return [rule for group in read_yaml(file)["groups"] for rule in group["rules"]]


def rules_under(test: Path) -> list[dict[str, Any]]:
    """Return the rules that a file of unit tests is about: those that it loads first."""
    first = read_yaml(test)["rule_files"][0]
    return rules_of(test.parent / first)


def alerts_of(block: dict[str, Any], test: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each alert that a block checks; one of two severities is two rules."""
    names = {check["alertname"] for check in block["alert_rule_test"]}
    return {
        name: [rule for rule in rules_under(test) if rule.get("alert") == name] for name in names
    }


RECORDED = {
    rule["record"]: rule["expr"]
    for file in (ROOT / "rules").glob("*.rules.yaml")
    for rule in rules_of(file)
    if "record" in rule
}
MEMBERSHIP = RECORDED.pop("job_node:membership:info")
# What only holds an alert is empty here, and the alert begins all the same.
for holding in (
    "gpu:unresolved_error_timestamp:max",
    "node:pcie_device_gone:max",
    "node:memory_lost:max",
):
    del RECORDED[holding]
# Blocks follow one another on the server's clock, far enough apart for the longest window.
FIRST, APART = 1_700_000_000, 100_000


def ends_unseen(block: dict[str, Any]) -> bool:
    """Whether a series ends between two rare samples: an import brings no marker of staleness."""
    ends = any("stale" in series["values"] for series in block.get("input_series", []))
    return ends and seconds(block["interval"]) > 15


BLOCKS = [
    (block, alerts)
    for file in TESTS
    for block in read_yaml(file)["tests"]
    if re.match(r"Peerwatch\w+: (fires|does not fire)", block["name"])
    for alerts in [alerts_of(block, file)]
    if not ends_unseen(block)
    and not any(
        name in rule["expr"] for rules in alerts.values() for rule in rules for name in RECORDED
    )
]
# increase() counts what a series begins with: what was counted before a node's first scrape is told
# of for as long as the window holds that scrape.
TELLS_OF_OLD = {
    "PeerwatchNicLinkFlap: does not fire",
    "PeerwatchNicHealth: fires",
    "PeerwatchHostHardwareEvents: fires",
}

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]


def expanded(values: str) -> Iterator[tuple[int, float]]:
    """Yield (step, value) of promtool's notation of a series; what is missing is left out."""
    step = 0
    for part in values.split():
        if part == "stale":
            step += 1
            continue
        gap = re.fullmatch(r"_(?:x(\d+))?", part)
        if gap:
            step += int(gap[1] or 1)
            continue
        start, slope, times = re.fullmatch(
            r"(-?[\d.e]+)(?:([+-][\d.e]+))?(?:x(\d+))?", part
        ).groups()
        for repeat in range(int(times or 0) + 1):
            yield step, float(start) + repeat * float(slope or 0)
            step += 1


def lines_of(block: dict[str, Any], start: int) -> Iterator[str]:
    """Yield the series of a block as lines of text with timestamps; times move to the clock."""
    for series in block.get("input_series", []):
        name = series["series"]
        # What holds a Unix time in the test holds one near 0.
        shift = start if "_timestamp_seconds" in name else 0
        for step, value in expanded(series["values"]):
            moment = int(start + step * seconds(block["interval"]))
            yield f"{name} {value + shift!r} {moment * 1000}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-vm-") as folder,
        Stack(Path(folder)) as stack,
    ):
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        process = stack.start(
            "victoria-metrics",
            [
                find_program("victoria-metrics", "victoria-metrics-prod"),
                f"-storageDataPath={folder}/data",
                f"-httpListenAddr=127.0.0.1:{port}",
                "-retentionPeriod=100y",
                "-search.disableCache",
                "-loggerLevel=ERROR",
            ],
            ready=f"{url}/health",
        )
        for number, (block, _) in enumerate(BLOCKS):
            body = "\n".join(lines_of(block, FIRST + number * APART)) + "\n"
            urllib.request.urlopen(f"{url}/api/v1/import/prometheus", body.encode(), 30).close()
        # What was imported is searchable once it is flushed.
        urllib.request.urlopen(f"{url}/internal/force_flush", timeout=300).close()
        yield Server(url, process)


def asked(server: Server, expression: str, moment: int) -> list[dict[str, str]]:
    """Return the labels of what fires; the membership of nodes in jobs stands in for itself."""
    whole = re.sub(
        r"job_node:membership:info(?:\{job_id(!?=)\"\"\})?",
        lambda found: f"({_narrowed(found[1])})",
        expression,
    )
    form = urllib.parse.urlencode({"query": whole, "time": moment}).encode()
    with urllib.request.urlopen(f"{server.url}/api/v1/query", form, 30) as answer:
        return [row["metric"] for row in json.load(answer)["data"]["result"]]


def _narrowed(sign: str | None) -> str:
    with_job, without = MEMBERSHIP.split("\nor\n")
    return {"!=": with_job, "=": without}.get(sign or "", MEMBERSHIP)


def test_the_notation_is_read_as_promtool_does() -> None:
    assert [(0, 1.0), (1, 1.0), (4, -2.0), (5, 3.0), (6, 5.0)] == list(
        expanded("1x1 _ stale -2 3+2x1")
    )


@each_case(
    "number",
    [pytest.param(number, id=block["name"]) for number, (block, _) in enumerate(BLOCKS)],
)
def test_what_fires_on_prometheus_fires_here(server: Server, number: int) -> None:
    block, alerts = BLOCKS[number]
    for check in block["alert_rule_test"]:
        rules = alerts[check["alertname"]]
        early = any("for" in rule for rule in rules) or block["name"] in TELLS_OF_OLD
        if early and not check["exp_alerts"]:
            continue
        moment = FIRST + number * APART + int(seconds(check["eval_time"]))
        fired = [
            rule["labels"] | {k: v for k, v in labels.items() if k != "__name__"}
            for rule in rules
            for labels in asked(server, rule["expr"], moment)
        ]
        expected = [alert["exp_labels"] for alert in check["exp_alerts"]]

        assert sorted(map(str, map(sorted, (d.items() for d in expected)))) == sorted(
            map(str, map(sorted, (d.items() for d in fired)))
        )
