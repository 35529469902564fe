"""Every fixture case gives exactly its expositions, and they obey the naming law."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from all_metrics import ALL_METRICS
from each_case import each_case
from hardware_cases import FIXTURES
from peerwatch_exporter.collector import all_metrics, metrics_by_topic

CATALOG = all_metrics()
TOPICS = metrics_by_topic()

CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
# Between them they have everything that the fast endpoint can show.
FAST_CASES = ["h100_node", "training_host"]
GOLDEN = sorted(
    [FIXTURES / case / "expected.prom" for case in CASES]
    + [FIXTURES / case / "expected_fast.prom" for case in FAST_CASES]
)
every_golden_exposition = pytest.mark.parametrize(
    "exposition", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
# What needs a sampler, a driver process that runs or fails, a rank that answers, logs that
# grow, or other nodes; their own tests publish it.
LIVE_METRICS = {
    "host_tcp_round_trip_seconds",
    "host_tcp_least_round_trip_seconds",
    "host_tcp_acknowledged_bytes_total",
    "gpu_unreadable",
    "exporter_nvml_restarts_total",
    "exporter_nvml_unkillable_processes",
    *(spec.name for spec in TOPICS["Millisecond sampling"]),
    *(spec.name for spec in TOPICS["Collectives"]),
    *(spec.name for spec in TOPICS["Logs"]),
    *(spec.name for spec in TOPICS["Pings between nodes"]),
    *(name for name in CATALOG if name.startswith("fast_fine_")),
}
EXPORTER_METRICS = {
    name
    for name in CATALOG
    # The others of this prefix are the detector's.
    if (not name.startswith("peerwatch_") or name.startswith("peerwatch_check_"))
    and name not in LIVE_METRICS
}


def check_golden(expected, actual, request):
    if request.config.getoption("--update-golden", default=False):
        expected.write_text(actual)
    assert expected.read_text() == actual


def published(exposition):
    """Return the label names of every sample of an exposition, by metric name."""
    labels = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).add(tuple(sorted(sample.labels)))
    return labels


@pytest.mark.parametrize("case", CASES)
def test_case_renders_its_golden_exposition(case, render, request):
    check_golden(FIXTURES / case / "expected.prom", render(case), request)


@pytest.mark.parametrize("case", FAST_CASES)
def test_case_renders_its_golden_fast_exposition(case, render_fast, request):
    check_golden(FIXTURES / case / "expected_fast.prom", render_fast(case), request)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
@every_golden_exposition
def test_promtool_accepts_the_exposition(exposition):
    check = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert ("", 0) == (check.stderr.decode(), check.returncode)


def test_the_cases_publish_the_whole_catalogue_and_nothing_else():
    names = {name for exposition in GOLDEN for name in published(exposition.read_text())}
    assert EXPORTER_METRICS == names - LIVE_METRICS


def test_no_metric_is_in_both_expositions():
    fast = {
        name
        for exposition in GOLDEN
        if "fast" in exposition.stem
        for name in published(exposition.read_text())
    }
    full = {
        name
        for exposition in GOLDEN
        if "fast" not in exposition.stem
        for name in published(exposition.read_text())
    }
    assert set() == fast & full
    assert all(name.startswith("fast_") for name in fast)


@every_golden_exposition
def test_samples_carry_the_catalogued_labels(exposition):
    for name, label_sets in published(exposition.read_text()).items():
        assert {tuple(sorted(CATALOG[name].labels))} == label_sets, name


@each_case("name", sorted(ALL_METRICS))
def test_metric_follows_the_naming_law(name):
    spec = ALL_METRICS[name]
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert (spec.kind == "counter") == name.endswith("_total")
    assert spec.help.endswith(".")
    # Values are those of the last tick, whenever somebody scrapes.
    assert "last scrape" not in spec.help
    assert spec.source
    assert not {"job", "instance", "cluster", "region", "zone"} & set(spec.labels)
    base = name.removesuffix("_total").removesuffix("_info").removesuffix("_max")
    for unit in ("seconds", "bytes", "ratio", "celsius", "watts", "joules", "hertz", "lanes"):
        if spec.unit == unit and not base.startswith("peerwatch_"):
            assert base.endswith(f"_{unit}"), f"{name} is in {unit}"
    assert not re.search(r"_(percent|ms|milliseconds|mib|kib|mhz|mb)(_|$)", base)
