"""A Prometheus that evaluates the shipped rules faster, over scripted expositions."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path

from asking import query

from e2e.scripted_expositions import ScriptedExpositions, faster
from peerwatch_demo.stack.servers import Server, Stack, find_program, free_ports
from yaml_files import yaml_text

RULES = Path(__file__).parents[2] / "rules"


def fast_prometheus(
    stack: Stack, expositions: ScriptedExpositions, names: list[str], manager: str
) -> Server:
    """Start a Prometheus that scrapes expositions and evaluates all shipped alerts, both faster."""
    (port,) = free_ports(1)
    folder = stack.directory / f"prometheus-{port}"
    folder.mkdir()
    files = []
    for rules in sorted(RULES.glob("*.rules.yaml")):
        # No alert asks for the detector's own series, and a second is no time at this speed.
        if rules.name != "recording.rules.yaml":
            files.append(str(folder / rules.name))
            (folder / rules.name).write_text(yaml_text(faster(rules, expositions.speed)))
    # Six seconds of the scripts.
    interval = f"{round(6000 / expositions.speed)}ms"
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "rule_files": files,
        "scrape_configs": [
            {
                "job_name": f"{name}-{of}",
                "honor_labels": True,
                "metrics_path": f"/{name}-{of}/metrics",
                "static_configs": [{"targets": [expositions.address], "labels": {"cluster": name}}],
            }
            for name in names
            for of in ("nodes", "detector")
        ],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [manager.removeprefix("http://")]}]},
            ]
        },
    }
    (folder / "prometheus.yml").write_text(yaml_text(config))
    return start_prometheus(stack, folder, port, expositions.speed)


def start_prometheus(stack: Stack, folder: Path, port: int, speed: float) -> Server:
    """Start, or start again, a Prometheus on a folder."""
    url = f"http://127.0.0.1:{port}"
    arguments = [
        find_program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--query.lookback-delta={round(300 / speed)}s",
        # What fires is sent again this often; Alertmanager forgets it after four times that.
        f"--rules.alert.resend-delay={round(60 / speed)}s",
        "--log.level=error",
    ]
    return Server(url, stack.start(folder.name, arguments, ready=f"{url}/-/ready"))


def count_firing(prometheus: Server) -> Counter[str]:
    """Return how many alerts fire in each cluster."""
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/alerts", timeout=300) as answer:
        alerts = json.load(answer)["data"]["alerts"]
    return Counter(
        alert["labels"].get("cluster", "") for alert in alerts if alert["state"] == "firing"
    )


def longest_unevaluated(prometheus: Server) -> float:
    """Return the longest time in which the rules on several nodes were not evaluated."""
    (series,) = query(prometheus.url, "alert:fault_resumed:seconds[1h]")
    times = [float(time) for time, _ in series["values"]]
    return max(later - earlier for earlier, later in pairwise(times))
