"""What the hardware catalogue declares is what some fixture publishes, and the other way round."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client import Metric

from hardware_cases import HARDWARE, case_node
from peerwatch_exporter.collector import all_metrics, registrations
from peerwatch_exporter.errors import PartialData

CATALOG = all_metrics()

CASES = ("h100_node", "degraded_node", "blackwell_node", "grace_node", "lost_gpu_node")
# What the collectors of the hardware say about themselves.
OWN = {"exporter_nvml_errors_total", "exporter_source_supported", "exporter_xid_events_total"}
# Published if asked for, while software keeps a GPU from being read, or by NICs of other makers.
OPTIONAL = {
    "nvlink_fec_symbols_total",
    "gpu_unreadable",
    "gpus_configured",
    "nic_phy_faults_total",
    "nic_phy_fec_corrected_blocks_total",
    "nic_phy_fec_uncorrectable_blocks_total",
}


def published(case: str) -> list[Metric]:
    """Return every family of the hardware collectors in a second scrape of one case."""
    with case_node(case) as fixture:
        collectors = [fixture.collector(name) for name in HARDWARE]
        for collector in collectors:
            list(families_of(collector))
        fixture.clock.now += 1
        return [family for collector in collectors for family in families_of(collector)]


def families_of(collector):
    """Yield the families of one collection, also where some of the values cannot be read."""
    with contextlib.suppress(PartialData):
        yield from collector.collect()


def test_every_declared_metric_is_published_by_a_fixture():
    seen = {
        sample.name for case in CASES for family in published(case) for sample in family.samples
    }

    registered = registrations()
    declared = {spec.name for name in HARDWARE for spec in registered[name].metrics}
    assert declared - OPTIONAL | OWN == seen


@pytest.mark.parametrize("case", CASES)
def test_samples_have_the_declared_labels(case):
    for family in published(case):
        for sample in family.samples:
            assert CATALOG[sample.name].labels == tuple(sample.labels)


@pytest.mark.parametrize("case", CASES)
def test_no_series_is_published_twice(case):
    series = [
        (sample.name, *sample.labels.items())
        for family in published(case)
        for sample in family.samples
    ]

    assert len(set(series)) == len(series)


@pytest.mark.parametrize("name", HARDWARE)
def test_collecting_twice_gives_the_same_exposition(name):
    with case_node("h100_node") as h100:
        collector = h100.collector(name)
        first, second = (
            [sample for family in collector.collect() for sample in family.samples]
            for _ in range(2)
        )

    assert first == second
