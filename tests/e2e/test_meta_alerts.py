"""The alerts on Peerwatch itself, where several clusters share one server.

promtool tests them on Prometheus' engine. vmalert's replay records, waits (``for``) and fires here
as it does on a VictoriaMetrics, by the very file of rules, over the past of four clusters; and a
running Prometheus and Alertmanager page while one cluster loses its detector and another one all
its exporters.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from asking import wait_for

from alertmanager_live import scaled
from detector.reading.servers import make_visible, victoria_metrics
from e2e.fast_prometheus import fast_prometheus
from e2e.scripted_expositions import Sample, Script, ScriptedExpositions
from peerwatch_demo.stack.servers import Stack, alertmanager, find_program, free_ports
from peerwatch_demo.stack.webhook import WebhookReceiver
from yaml_files import read_yaml

ROUTES = Path(__file__).parents[2] / "rules" / "alertmanager.example.yaml"
RULES = Path(__file__).parents[2] / "rules" / "meta.rules.yaml"
ALERTS = ("PeerwatchDetectorDown", "PeerwatchNoExporters", "PeerwatchClusterMismatch")
HOUR, STEP = 3600, 15
# By cluster, until when exporters and detector answered, in seconds of the hour.
CLUSTERS = {
    "healthy": (HOUR, HOUR),
    "detector-dies": (HOUR, 1200),
    "exporters-vanish": (1200, HOUR),
    "detector-never-came": (HOUR, 0),
}

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]


def lines(began: int) -> Iterator[str]:
    """Yield what was scraped of the clusters, as lines of text with timestamps."""
    for cluster, (exporters, detector) in CLUSTERS.items():
        series = [
            (f'exporter_build_info{{cluster="{cluster}",node="n{number}"}}', exporters)
            for number in range(2)
        ]
        series.append((f'peerwatch_build_info{{cluster="{cluster}"}}', detector))
        for name, end in series:
            for second in range(0, end, STEP):
                yield f"{name} 1 {(began + second) * 1000}"


def chosen_rules() -> str:
    """Return the recorded series and the alerts that are of absence; vmalert waits after each."""
    (group,) = read_yaml(RULES)["groups"]
    rules = [rule for rule in group["rules"] if "record" in rule or rule["alert"] in ALERTS]
    # Debian's vmalert 1.79 is older than this field; later ones know it.
    known = [{k: v for k, v in rule.items() if k != "keep_firing_for"} for rule in rules]
    return yaml.safe_dump({"groups": [{**group, "rules": known}]})


def test_absence_fires_for_its_own_cluster_on_vmalert() -> None:
    began = int(time.time()) // STEP * STEP - 2 * HOUR
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-vmalert-") as folder,
        Stack(Path(folder)) as stack,
    ):
        server = victoria_metrics(stack)
        body = "\n".join(lines(began)) + "\n"
        urllib.request.urlopen(f"{server.url}/api/v1/import/prometheus", body.encode(), 60).close()
        make_visible(server)
        rules = Path(folder) / "meta.yaml"
        rules.write_text(chosen_rules())
        moments = [
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began + second))
            for second in (60, HOUR - 60)
        ]
        subprocess.run(
            [
                find_program("vmalert", "vmalert-prod"),
                f"-rule={rules}",
                f"-datasource.url={server.url}",
                f"-datasource.queryStep={STEP}s",
                f"-remoteWrite.url={server.url}",
                # What a rule recorded must be found when the next one asks.
                "-remoteWrite.flushInterval=200ms",
                "-replay.rulesDelay=4s",
                f"-replay.timeFrom={moments[0]}",
                f"-replay.timeTo={moments[1]}",
                "-replay.disableProgressBar",
            ],
            check=True,
            capture_output=True,
            timeout=300,
        )
        make_visible(server)
        query = {
            "query": 'min_over_time(timestamp(ALERTS{alertstate="firing"})[1h:15s])',
            "time": began + HOUR - 60,
        }
        url = f"{server.url}/api/v1/query?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            rows = json.load(answer)["data"]["result"]
    fired = {
        (row["metric"]["alertname"], row["metric"]["cluster"]): float(row["value"][1]) - began
        for row in rows
    }
    assert {
        ("PeerwatchDetectorDown", "detector-dies"),
        ("PeerwatchDetectorDown", "detector-never-came"),
        ("PeerwatchNoExporters", "exporters-vanish"),
    } == fired.keys()
    # Five minutes after the last sample, or after the first of all.
    assert all(
        second >= 1200 + 300 for (_, c), second in fired.items() if c != "detector-never-came"
    )


# Seconds of the script after which two of the clusters lose something; ten times as fast as on the
# wall, like the rules and the routes.
SPEED, LOSS = 10, 100
LOSSES = {"healthy": "", "detector-dies": "detector", "exporters-vanish": "nodes"}


def exposition(cluster: str, name: str) -> Script:
    """Return the script of an exposition that cannot be scraped once its cluster has lost it."""

    def lines() -> Iterator[Sample]:
        if name == "nodes":
            for number in range(2):
                yield Sample("exporter_build_info", 1, {"node": f"n{number}"})
            return
        yield Sample("peerwatch_build_info", 1, {})
        yield Sample("peerwatch_reader_up", 1, {})
        yield Sample("peerwatch_discovery_last_success_timestamp_seconds", time.time(), {})

    return lambda second: None if name == LOSSES[cluster] and second >= LOSS else lines()


def test_each_cluster_that_shares_a_prometheus_is_paged_for_once_and_for_itself(
    tmp_path: Path,
) -> None:
    scripts = {
        f"{name}-{of}": exposition(name, of) for name in LOSSES for of in ("nodes", "detector")
    }
    with (
        WebhookReceiver() as receiver,
        ScriptedExpositions(scripts, SPEED) as expositions,
        Stack(tmp_path) as stack,
    ):
        routes = json.dumps(scaled(read_yaml(ROUTES), SPEED, receiver.url))
        manager = alertmanager(stack, free_ports(1)[0], routes)
        fast_prometheus(stack, expositions, list(LOSSES), manager.url)
        expositions.begin()

        def told(path: str) -> list[tuple[str, str]]:
            return sorted(
                (alert.labels["alertname"], alert.labels.get("cluster", ""))
                for sent in receiver.notifications(path)
                for alert in sent.firing()
            )

        wait_for("both pages", lambda: len(told("/page")) >= len(LOSSES) - 1)
        # What else might be sent for the same loss would have been by then.
        expositions.wait_until(expositions.seconds + 120)

        assert told("/page") == [
            ("PeerwatchDetectorDown", "detector-dies"),
            ("PeerwatchNoExporters", "exporters-vanish"),
        ]
        assert told("/ticket") == []
