"""The nvlink collector: both generations of counters under one set of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import case_node, collected, node, only, scenario_of
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources.gpu.nvlink import error_ratio

UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format


def one_gpu(fields, **changes):
    """Return a node with one GPU that answers just these fields."""
    gpu = scenario_of("h100_node")["gpus"][0]
    return {"driver_version": "570.124.06", "gpus": [{**gpu, "fields": fields, **changes}]}


def blackwell(**fields):
    """Return a GPU with two links that answers only the newer counters, and no sum over links."""
    return one_gpu(
        {
            "91": 2,
            "164": [53125, 53125],
            "165": [1, 1],
            "202": [1000, 2000],
            "204": [30, 40],
            "206": [1, 0],
            "215": [5, 6],
            "214": [0, 2],
            "221": [700, 800],
            **fields,
        }
    )


def test_bytes_are_kibibytes_times_1024():
    with case_node("h100_node") as h100:
        samples = h100.collect("nvlink")

    assert 40960000125 * 1024 == samples["nvlink_transmit_bytes_total", "2", UUID(2)]
    assert 40950000458 * 1024 == samples["nvlink_receive_bytes_total", "2", UUID(2)]


def test_links_errors_and_speed_of_hopper():
    with case_node("h100_node") as h100:
        samples = h100.collect("nvlink_errors")

    assert 8 * 18 == sum(only(samples, "nvlink_up").values())
    assert {26562e6} == set(only(samples, "nvlink_speed_bytes_per_second").values())
    errors = {key: value for key, value in only(samples, "nvlink_errors_total").items() if value}
    assert {
        ("6", UUID(6), "17", "replay"): 12,
        ("6", UUID(6), "17", "recovery"): 3,
        ("6", UUID(6), "4", "crc"): 7,
    } == errors
    assert 8 * 18 * 3 == len(only(samples, "nvlink_errors_total"))


def test_blackwell_counters_come_under_the_same_names():
    with node(blackwell()) as b200:
        samples = b200.collect("nvlink") | b200.collect("nvlink_errors")

    assert 3000 == samples["nvlink_transmit_bytes_total", "0", UUID(0)]
    assert 70 == samples["nvlink_receive_bytes_total", "0", UUID(0)]
    assert {
        ("0", UUID(0), "0", "malformed"): 1,
        ("0", UUID(0), "0", "recovery"): 5,
        ("0", UUID(0), "0", "symbol"): 700,
        ("0", UUID(0), "1", "malformed"): 0,
        ("0", UUID(0), "1", "recovery"): 6,
        ("0", UUID(0), "1", "symbol"): 800,
    } == only(samples, "nvlink_errors_total")
    assert {
        ("0", UUID(0), "0", "failed"): 0,
        ("0", UUID(0), "1", "failed"): 2,
    } == only(samples, "nvlink_link_recoveries_total")


def test_older_recovery_counter_wins_where_both_answer():
    with node(blackwell(**{"162": [9, 9]})) as both:
        samples = both.collect("nvlink_errors")

    assert 9 == samples["nvlink_errors_total", "0", UUID(0), "0", "recovery"]


def test_link_that_goes_down_does_not_make_the_byte_counter_fall():
    scenario = blackwell()
    with node(scenario) as b200:
        collectors = [b200.collector(name) for name in ("nvlink", "nvlink_errors")]
        for collector in collectors:
            collected(collector)
        scenario["gpus"][0]["fields"].update(
            {"165": [1, 0], "202": [1500, None], "204": [35, None], "221": [701, None]}
        )
        samples = {
            k: v for nvlink_collector in collectors for k, v in collected(nvlink_collector).items()
        }

    assert 3500 == samples["nvlink_transmit_bytes_total", "0", UUID(0)]
    assert 75 == samples["nvlink_receive_bytes_total", "0", UUID(0)]
    assert 0 == samples["nvlink_up", "0", UUID(0), "1"]
    assert ("nvlink_errors_total", "0", UUID(0), "1", "symbol") not in samples


def test_byte_counter_never_changes_its_source():
    scenario = one_gpu({"91": 1, "165": [1], "138": {"all": 5}, "139": {"all": 6}, "202": [1]})
    with node(scenario) as h100:
        collector = h100.collector("nvlink")
        assert 5 * 1024 == collected(collector)["nvlink_transmit_bytes_total", "0", UUID(0)]
        fields = scenario["gpus"][0]["fields"]
        del fields["138"], fields["139"]
        fields["204"] = [1]
        samples = collected(collector)

    assert {} == only(samples, "nvlink_transmit_bytes_total")


def test_error_counters_are_learnt_from_a_link_that_is_up():
    scenario = one_gpu({"91": 2, "165": [0, 0]})
    with node(scenario) as h100:
        collector = h100.collector("nvlink_errors")
        assert {} == only(collected(collector), "nvlink_errors_total")
        scenario["gpus"][0]["fields"].update({"165": [0, 1], "161": [None, 4]})

        assert {("0", UUID(0), "1", "replay"): 4} == only(
            collected(collector), "nvlink_errors_total"
        )


def test_supported_counters_alone_are_asked_after_the_first_time():
    with case_node("h100_node") as h100:
        bytes_only, links = h100.collector("nvlink"), h100.collector("nvlink_errors")
        calls = []
        for collector in (bytes_only, bytes_only, links, links):
            before = h100.nvml.calls.get("nvmlDeviceGetFieldValues", 0)
            collected(collector)
            calls.append(h100.nvml.calls["nvmlDeviceGetFieldValues"] - before)

    # Link counts once, that of links to a CPU too; then the bytes. 18 links x 19 fields make three
    # calls, 18 x 5 one.
    assert [8 * 2, 8 * 1, 8 * 5, 8 * 1] == calls


def test_old_driver_is_asked_link_by_link():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("nvlink_errors")

    up = only(samples, "nvlink_up")
    assert 3 * 18 == len(up)
    assert [("3", UUID(3), "9")] == [key for key, value in up.items() if not value]
    assert 0 == samples["nvlink_speed_bytes_per_second", "3", UUID(3), "9"]


def test_per_link_detail_can_be_switched_off():
    config = ExporterConfig.model_validate({"nvlink": {"per_link": False}})
    with case_node("h100_node") as h100:
        samples = collected(h100.collector("nvlink_errors", config))

    assert {} == samples


def test_bytes_with_the_protocol_are_counted_beside_the_payload():
    fields = {"91": 1, "138": {"all": 5}, "139": {"all": 6}, "140": {"all": 7}, "141": {"all": 8}}
    with node(one_gpu(fields)) as h100:
        samples = h100.collect("nvlink")

    assert 7 * 1024 == samples["nvlink_raw_transmit_bytes_total", "0", UUID(0)]
    assert 8 * 1024 == samples["nvlink_raw_receive_bytes_total", "0", UUID(0)]


def test_bit_error_ratios_are_decoded():
    # Mantissa 3 and exponent 12; no error at all.
    with node(blackwell(**{"220": [3 << 8 | 12, 0], "222": [15 << 8 | 254, None]})) as b200:
        ratios = only(b200.collect("nvlink_errors"), "nvlink_bit_error_ratio")

    assert {
        ("0", UUID(0), "0", "effective"): pytest.approx(3e-12),
        ("0", UUID(0), "1", "effective"): 0,
        ("0", UUID(0), "0", "symbol"): pytest.approx(15e-254),
    } == ratios


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_no_packed_ratio_raises(packed):
    assert 0 <= error_ratio(packed) <= 15


def test_history_of_repairs_is_published_on_demand_only():
    config = ExporterConfig.model_validate({"nvlink": {"fec": True}})
    with node(blackwell(**{"235": [5, 6], "250": [0, 1]})) as b200:
        without = b200.collect("nvlink_errors")
        samples = collected(b200.collector("nvlink_errors", config))

    assert {} == only(without, "nvlink_fec_symbols_total")
    assert {
        ("0", UUID(0), "0", "0"): 5,
        ("0", UUID(0), "1", "0"): 6,
        ("0", UUID(0), "0", "15"): 0,
        ("0", UUID(0), "1", "15"): 1,
    } == only(samples, "nvlink_fec_symbols_total")


@pytest.mark.parametrize(("fields", "supported"), [({}, 0), ({"91": 1, "138": {"all": 5}}, 0)])
def test_missing_byte_counters_are_said(fields, supported):
    with node(one_gpu(fields, nvlink_states=[])) as board:
        assert {("exporter_source_supported", "nvlink_bytes", "0"): supported} == board.collect(
            "nvlink"
        )


@pytest.mark.parametrize("fields", [{"91": 0}, {}], ids=["count_0", "nothing_answers"])
def test_gpu_without_nvlink_has_no_data(fields):
    with node(one_gpu(fields, nvlink_states=[])) as pcie_gpu, pytest.raises(NoData):
        pcie_gpu.collect("nvlink_errors")


def test_links_to_a_grace_cpu_have_state_and_speed():
    with case_node("grace_node") as grace:
        samples = grace.collect("nvlink_errors")

    up = only(samples, "nvlink_c2c_up")
    assert 20 == len(up)
    assert [("1", UUID(1), "9")] == [labels for labels, state in up.items() if not state]
    speeds = only(samples, "nvlink_c2c_speed_bytes_per_second")
    # Only links that are active have one.
    assert ({44712e6}, 19) == (set(speeds.values()), len(speeds))


def test_links_to_a_cpu_are_published_without_any_between_gpus():
    with node(one_gpu({"91": 0, "170": 1, "171": [1], "172": [44712]})) as grace:
        samples = grace.collect("nvlink_errors")
    assert {("nvlink_c2c_up", "0", UUID(0), "0"): 1} == {
        key: value for key, value in samples.items() if key[0].endswith("_up")
    }


def test_gpu_without_a_grace_cpu_is_asked_once():
    with node(one_gpu({"91": 1, "165": [1]})) as plain:
        collector = plain.collector("nvlink_errors")
        collected(collector)
        calls = plain.nvml.calls["nvmlDeviceGetFieldValues"]
        samples = collected(collector)
        assert 1 == plain.nvml.calls["nvmlDeviceGetFieldValues"] - calls
    assert not [key for key in samples if "c2c" in key[0]]


def test_gpu_lost_between_its_links_costs_only_itself():
    scenario = scenario_of("grace_node")
    with node(scenario) as grace:
        collector = grace.collector("nvlink_errors")
        collected(collector)
        scenario["gpus"][0]["fields"]["171"] = "lost"
        samples = collected(collector)
    assert {"1"} == {key[0] for key in only(samples, "nvlink_c2c_up")}
