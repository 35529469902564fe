"""The alerts' expressions on a second engine: a real VictoriaMetrics, with the unit tests' series.

promtool tests what Prometheus makes of the rules. MetricsQL differs in places that matter to rules:
ranges are open on the left, increase() counts what a series begins with, staleness is guessed. So
every block that must fire, or must not, is loaded here too, and every expression asked at the same
moments. ``for`` and ``keep_firing_for`` are vmalert's and are left out.
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
import yaml

from alertmanager_live import seconds
from peerwatch_demo.stack.servers import Server, Stack, find_program, free_ports

ROOT = Path(__file__).parents[2]
RULES = {
    rule["alert"]: [other for other in rules if other.get("alert") == rule["alert"]]
    for file in sorted((ROOT / "rules").glob("*.rules.yaml"))
    for rules in [[r for g in yaml.safe_load(file.read_text())["groups"] for r in g["rules"]]]
    for rule in rules
    if "alert" in rule
}
(MEMBERSHIP,) = [
    rule["expr"]
    for group in yaml.safe_load((ROOT / "rules" / "job.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
    if "record" in rule
]
# Blocks follow one another on the server's clock, far enough apart for the longest window.
FIRST, APART = 1_700_000_000, 100_000
STEP = 15

BLOCKS = [
    block
    for file in sorted((ROOT / "tests" / "rules").glob("*.test.yaml"))
    for block in yaml.safe_load(file.read_text())["tests"]
    if re.match(r"Peerwatch\w+: (fires|does not fire)", block["name"])
]
# increase() counts what a series begins with: what was counted before a node's first scrape is told
# of for as long as the window holds that scrape.
TELLS_OF_OLD = {
    "PeerwatchNicLinkFlap: does not fire",
    "PeerwatchNicHealth: fires",
    "PeerwatchHostHardwareEvents: fires",
}

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("victoria-metrics")]


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
            yield f"{name} {value + shift!r} {(start + step * STEP) * 1000}"


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
        for number, block in enumerate(BLOCKS):
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


@pytest.mark.parametrize(
    ("number", "block"), list(enumerate(BLOCKS)), ids=[block["name"] for block in BLOCKS]
)
def test_what_fires_on_prometheus_fires_here(
    server: Server, number: int, block: dict[str, Any]
) -> None:
    for check in block["alert_rule_test"]:
        rules = RULES[check["alertname"]]
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
