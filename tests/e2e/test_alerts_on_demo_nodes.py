"""What the exporter's demo nodes show, and what the shipped alerts say: each fault its own.

The unit tests feed series that were written for them; here the real exporter makes them, from every
scenario it can act, and a real Prometheus evaluates all rules at once. An alert that is pending has
been found; waiting for its ``for`` would only take time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo_signs import SIGNS, Exposition, samples_of
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_demo.stack.servers import (
    Process,
    Stack,
    Target,
    free_ports,
    prometheus,
    prometheus_config,
    wait_http,
)

ROOT = Path(__file__).parents[2]
# Without the series that are recorded every second for the detector: no alert reads them.
RULES = [
    path
    for path in sorted((ROOT / "rules").glob("*.rules.yaml"))
    if path.name != "recording.rules.yaml"
]
# All must have been scraped before: what happened earlier is no change. How long all take to start
# is known from the first.
ONSET_SECONDS, ONSET_STARTS = 20, 10
# Their alerts look back for minutes, so they begin before the others.
KNOWN_LATE = ("pfc_storm", "ecn_congestion", "hung_gpu", "thermal_throttle")

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

# Without the prefix Peerwatch. What a scenario shows only after minutes is not waited for.
EXPECTED = {
    "healthy": set(),
    "idle": set(),
    "lost_gpu": {"XidHardware", "GpuMissing", "PcieDeviceGone"},
    "hung_gpu": {"XidHardware", "GpuMissing", "GpuDriverHung"},
    "pcie_downgrade": {"PcieDowntrained", "PcieErrors"},
    "pfc_storm": {"PfcStorm", "PfcPause"},
    "thermal_throttle": {"GpuThermalThrottling"},
    "power_brake": {"GpuPowerThrottling"},
    "nvlink_errors": {
        *("XidHardware", "SxidFatal", "NvlinkDown", "NvlinkErrors", "GpuFabricUnhealthy"),
    },
    "ecc_error": {
        *("XidWatch", "XidDegraded", "GpuEccErrors", "GpuRecoveryAction", "GpuResetPending"),
    },
    "nic_down": {"NicLinkDown", "NicLinkFlap", "NicHealth", "NicTransportErrors"},
    "nic_flap": {"NicLinkFlap", "NicHealth", "NicCableErrors"},
    "ecn_congestion": {"FabricCongestion"},
    "hung_rank": set(),
    "waiting": set(),
    "slow_tcp": set(),
}
# One job runs on all these nodes. What may follow from a fault, sooner or later, on whom it hits.
LATER = {
    # Several scenarios begin together with the same kind of fault; it is known once the rules have
    # watched for 150 s, which is before that where the nodes start slowly.
    "SharedCauseNode",
    "GpuIdle",
    "RdmaStoppedNode",
    "HeartbeatOld",
    "HostHungTasks",
    "NicSlow",
    "NicTransportErrors",
}
# Pending for the seconds for which the link is down, or in which the last heartbeats of a job are
# seen and its processes are not any more; never longer. A GPU that is slowed by heat is near its
# limit, and above it at times.
BRIEFLY = {
    "nic_flap": {"NicLinkDown"},
    "idle": {"RankStopped"},
    "thermal_throttle": {"GpuTemperatureHigh"},
}


@dataclass(frozen=True)
class Found:
    """By scenario: alerts, once all that must come has come, whether it is exposed, the log."""

    alerts: dict[str, set[str]]
    shown: dict[str, bool]
    logs: dict[str, str]


@pytest.fixture(scope="module")
def found() -> Iterator[Found]:
    """Let all scenarios play at once, one node each."""
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-alerts-") as folder,
        Stack(Path(folder)) as stack,
    ):
        *ports, server_port = free_ports(len(SCENARIOS) + 1)
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(SCENARIOS, ports, strict=True)}
        started: dict[str, Process] = {}
        before: dict[str, Exposition] = {}

        def start(name: str, onset_seconds: float) -> None:
            command = [sys.executable, "-m", "peerwatch_demo.exporter", name]
            command += ["--onset", f"{onset_seconds:.0f}", "--listen", addresses[name]]
            started[name] = stack.start(name, command)

        def look_at(name: str) -> None:
            wait_http(f"http://{addresses[name]}/-/healthy", started[name])
            before[name] = exposition(addresses[name])

        targets = [
            Target("peerwatch-exporter", address, {"node": name})
            for name, address in addresses.items()
        ]
        config = prometheus_config(targets, rules=RULES, interval="5s")
        server = prometheus(stack, server_port, config)
        began = time.monotonic()
        start("healthy", 0)
        look_at("healthy")
        took = time.monotonic() - began
        others = sorted(SCENARIOS.keys() - {"healthy", *KNOWN_LATE})
        for names, starts in ((KNOWN_LATE, len(KNOWN_LATE)), (others, ONSET_STARTS)):
            for name in names:
                start(name, ONSET_SECONDS + starts * took)
            for name in names:
                look_at(name)
        alerts: dict[str, set[str]] = {name: set() for name in SCENARIOS}
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            # A busy machine makes exporters late: what is said of them counts if it stays.
            now = active(server.url)
            late = [
                alert
                for alert in now
                if alert["role"] == "meta" and alert["alertname"] != "PeerwatchSharedCauseNode"
            ]
            note(alerts, [alert for alert in now if alert not in late])
            if all(wanted <= alerts[name] for name, wanted in EXPECTED.items()) and not any(
                alert.get("node") for alert in late
            ):
                break
            time.sleep(2)
        else:
            note(alerts, late)
        shown = {name: shows(name, before[name], addresses[name]) for name in SIGNS}
        logs = {name: process.log.read_text() for name, process in started.items()}
        yield Found(alerts, shown, logs)


def exposition(address: str) -> Exposition:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=300) as answer:
        return samples_of(answer.read().decode())


def shows(scenario: str, first: Exposition, address: str) -> bool:
    """Return whether the exposition shows the scenario, now or in the next half minute.

    Some begin anew all the time, and some collectors run every 10 s.
    """
    deadline = time.monotonic() + 30
    while not SIGNS[scenario](first, exposition(address)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def note(alerts: dict[str, set[str]], found: list[dict[str, str]]) -> None:
    for alert in found:
        if alert.get("node"):
            alerts[alert["node"]].add(alert["alertname"].removeprefix("Peerwatch"))


def active(url: str) -> list[dict[str, str]]:
    """Return the labels of all alerts that are pending or firing."""
    form = urllib.parse.urlencode({"query": "ALERTS"}).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query", form, 60) as answer:
        return [row["metric"] for row in json.load(answer)["data"]["result"]]


def test_every_scenario_is_expected() -> None:
    assert SCENARIOS.keys() == EXPECTED.keys()


@pytest.mark.parametrize("scenario", list(EXPECTED))
def test_a_demo_node_has_its_alerts_and_no_others(found: Found, scenario: str) -> None:
    may = BRIEFLY.get(scenario, set()) | (LATER if scenario != "healthy" else set())

    assert EXPECTED[scenario] <= found.alerts[scenario]
    assert found.alerts[scenario] <= EXPECTED[scenario] | may


@pytest.mark.parametrize("scenario", sorted(SIGNS))
def test_a_demo_node_shows_its_scenario_in_its_exposition(found: Found, scenario: str) -> None:
    assert found.shown[scenario]
    assert "Traceback" not in found.logs[scenario]
