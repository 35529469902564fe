"""Every scenario of the simulated node shows its change, on files and boards of one moment."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo_signs import SIGNS
from fake_nvml import install
from hardware_cases import NOW, FakeClock
from peerwatch_demo.simulated_node.node import SimulatedNode
from peerwatch_demo.simulated_node.nvml import SimulatedNvml
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_exporter.collector import all_metrics, registrations
from peerwatch_exporter.pages.endpoints import Endpoints
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import make_workers
from peerwatch_exporter.settings.load import load_config

CATALOG = all_metrics()

ONSET = 60.0
# A hung call never returns; only the command line has a process that can be ended over it.
IN_PROCESS = sorted(set(SCENARIOS) - {"hung_gpu"})
# What a demonstration without the sampler, over an exposition that is read in order, does not show.
# The sampler's and the detector's; its ranks are scripts without collectives and spans.
NOT_SIMULATED = (
    "peerwatch_",
    "sampler_",
    "nic_burst_",
    "gpu_burst_",
    "fast_fine_",
    "collective_",
    "ping_",
    "span_",
)
NOT_SHOWN = {
    "rank_clock_offset_seconds": "its ranks keep no spans",
    "rank_exit_info": "its ranks run",
    "rank_halted_seconds": "its ranks run",
    "bond_slave_up": "it has no bond",
    "bond_slave_link_failures_total": "it has no bond",
    "ethernet_carrier_losses_total": "its ports are InfiniBand",
    "ethernet_errors_total": "its ports are InfiniBand",
    "gpu_mig_instance_info": "its GPUs are whole",
    "gpu_mig_memory_total_bytes": "its GPUs are whole",
    "gpu_mig_memory_used_bytes": "its GPUs are whole",
    "exporter_collector_error_info": "nothing fails",
    "log_class_events_total": "logs are not followed by default",
    "log_events_total": "the same",
    "log_event_last_timestamp_seconds": "the same",
    "log_peer_errors_total": "the same",
    "log_first_error_timestamp_seconds": "the same",
    "log_first_error_info": "the same",
    "log_read_bytes_total": "the same",
    "log_skipped_bytes_total": "the same",
    "log_files": "the same",
    "log_unread_outputs": "the same",
    "log_reader_restarts_total": "the same",
    "gpu_unreadable": "software keeps no GPU from being read",
    "gpus_configured": "gpu.expected_count is not set",
    "nic_phy_faults_total": "Intel NICs only",
    "nic_phy_fec_corrected_blocks_total": "Broadcom NICs only",
    "nic_phy_fec_uncorrectable_blocks_total": "Broadcom NICs only",
    "exporter_job_mapping_errors_total": "the job is found without a mapping directory",
    "exporter_nvml_errors_total": "no call fails but those for a lost GPU",
    "exporter_nvml_restarts_total": "told by the driver's parent: see test_command.py",
    "exporter_nvml_unkillable_processes": "told by the driver's parent",
    "gpu_retired_pages": "boards before Ampere only",
    "gpu_page_retirement_pending": "boards before Ampere only",
    "nvlink_bit_error_ratio": "Blackwell only",
    "nvlink_fec_symbols_total": "Blackwell only, and off by default",
    "nvlink_link_recoveries_total": "Blackwell only",
    "nvlink_c2c_up": "beside a Grace CPU only",
    "nvlink_c2c_speed_bytes_per_second": "beside a Grace CPU only",
}


@contextlib.contextmanager
def demo(name, seed=1):
    """Yield a function that gives the samples of the exposition at a time after the start."""
    clock = FakeClock()
    node = SimulatedNode(name, seed, ONSET, clock=clock)
    try:
        node.tree.create()
        registered = registrations()
        config = node.settings(load_config(None, listen=None, known_collectors=registered))
        sources = replace(node.sources(config), monotonic=clock)
        with install(SimulatedNvml(SCENARIOS[name], seed, NOW, ONSET, clock=clock)):
            runner = Runner(
                make_workers(config, sources, registered, None),
                sources,
                deadline_seconds=30,
                version="0.0.0",
            )

            def exposition_at(seconds):
                clock.now = NOW + seconds
                node.tree.update(seconds)
                snapshot = runner.tick(everybody=True)
                return {
                    (item.spec.name, *labels): value
                    for item in snapshot.families
                    for labels, value in item.rows
                }

            exposition_at.runner = runner
            yield exposition_at
            runner.stop()
    finally:
        node.stop()


def fast_names(runner):
    """Return the names of the metrics on the fast endpoint."""
    text = Endpoints(runner).fast(openmetrics=False, scraper=None, timeout=0).decode()
    return {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


def without_self_metrics(exposition):
    return {key: value for key, value in exposition.items() if not key[0].startswith("exporter_")}


def fallen_counters(*expositions):
    """Return the counters that are lower in one exposition than in one before."""
    fallen, totals = set(), {}
    for exposition in expositions:
        counters = without_self_metrics(exposition)
        counters = {key: counters[key] for key in counters if CATALOG[key[0]].kind == "counter"}
        fallen |= {key for key in counters if counters[key] < totals.get(key, 0)}
        totals |= counters
    return fallen


def test_every_scenario_has_a_sign():
    assert set(SCENARIOS) - {"healthy"} == set(SIGNS)
    assert all(scenario.summary for scenario in SCENARIOS.values())


@pytest.mark.parametrize("name", [name for name in IN_PROCESS if name != "healthy"])
def test_scenario_shows_its_change_from_the_onset_on(name):
    with demo(name) as exposition_at:
        early, late, first, second = (exposition_at(seconds) for seconds in (30, 50, 110, 125))

    assert not SIGNS[name](early, late)
    assert SIGNS[name](first, second)
    assert set() == fallen_counters(early, late, first, second)


def test_healthy_node_shows_none_of_the_signs():
    with demo("healthy") as exposition_at:
        first, second = exposition_at(110), exposition_at(125)

    assert [] == [name for name, sign in SIGNS.items() if sign(first, second)]


@pytest.mark.parametrize("name", ["healthy", "idle", "nic_flap", "pcie_downgrade", "nic_down"])
def test_counters_rise_through_steps_checkpoints_and_the_onset(name):
    with demo(name) as exposition_at:
        expositions = [exposition_at(seconds) for seconds in (1, 58, 59, 60, 61, 62, 600, 660)]

    assert set() == fallen_counters(*expositions)


def test_same_seed_and_time_give_the_same_exposition():
    expositions = []
    for seed in (1, 1, 2):
        with demo("thermal_throttle", seed) as exposition_at:
            exposition_at(100)
            expositions.append(without_self_metrics(exposition_at(110)))

    assert expositions[0] == expositions[1]
    assert expositions[0] != expositions[2]


def test_driver_that_starts_in_the_middle_goes_on_with_the_counters():
    clock = FakeClock(NOW + 10)
    old = SimulatedNvml(SCENARIOS["nvlink_errors"], 1, NOW, ONSET, clock=clock)
    clock.now = NOW + 100
    new = SimulatedNvml(SCENARIOS["nvlink_errors"], 1, NOW, ONSET, clock=clock)

    assert old.board(4) == new.board(4)
    assert new.board(4)["fields"]["163"][7] > 0


def test_scenarios_together_show_every_metric_of_the_exporter():
    shown = set()
    for name in ("nvlink_errors", "ecc_error"):
        with demo(name) as exposition_at:
            for seconds in (100, 101):
                shown |= {key[0] for key in exposition_at(seconds)}
            shown |= fast_names(exposition_at.runner)
    expected = {name for name in CATALOG if not name.startswith(NOT_SIMULATED)}

    assert set() == expected - shown - NOT_SHOWN.keys()
    assert set() == shown - expected


def test_node_leaves_nothing_behind():
    node = SimulatedNode("nic_flap", 1, 0.0)
    node.start()
    assert (node.root / "proc" / "stat").exists()
    node.stop()
    node.stop()

    assert not node.root.exists()


def test_unknown_scenario_is_refused():
    with pytest.raises(KeyError):
        SimulatedNode("no_such_thing", 1, 0.0)
