"""The fast endpoint's values, second by second."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from each_case import each_case
from hardware_cases import NOW
from peerwatch_detector.config import load_preset
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import all_metrics, metrics_by_topic
from peerwatch_exporter.schedule.fast_aggregator import FastAggregator
from peerwatch_exporter.schedule.fast_metrics import TABLE, UNTIMED, FastMetric, Selector
from peerwatch_exporter.schedule.scheduled_collector import LatestResult
from peerwatch_exporter.schedule.worker import Report

CATALOG = all_metrics()
TOPICS = metrics_by_topic()


def latest_results(started, collector="c", **rows):
    """Return what a collector's run gave, {metric: [(labels, value)]}."""
    families = []
    for name, found in rows.items():
        item = family(name)
        item.rows = list(found)
        families.append(item)
    report = Report(collector, tuple(families), True, None, 0.0, NOW, 0, {})
    return LatestResult(report, report.families, started, 0)


def values(aggregator, reports, time=NOW):
    return {
        (item.spec.name, *labels): value
        for item in aggregator.families(reports, time)
        for labels, value in item.rows
    }


def second(values_after, values_before, **more):
    """Return the exposition of a second in which metrics went from one set of rows to another."""
    aggregator = FastAggregator()
    values(aggregator, [latest_results(10.0, **values_before)])
    return values(aggregator, [latest_results(11.0, **values_after, **more)])


def only(exposition, *names):
    return {key: value for key, value in exposition.items() if key[0] in names}


def pauses(frames_transmit, frames_receive):
    return [
        (("mlx5_0", "1", "transmit", "3"), frames_transmit),
        (("mlx5_1", "1", "transmit", "4"), frames_transmit),
        (("mlx5_0", "1", "receive", "3"), frames_receive),
    ]


def test_table_and_catalogue_name_the_same_metrics():
    names = [spec.name for spec in TOPICS["The fast endpoint"]]
    # Those come from the sampler, at another rate.
    assert [name for name in names if not name.startswith("fast_fine_")] == [
        "fast_up",
        *(metric.name for metric in TABLE),
    ]


@each_case("metric", TABLE)
def test_metric_is_made_of_catalogued_metrics_by_labels_they_have(metric):
    labels = {label for name in metric.selector.metrics for label in CATALOG[name].labels}
    assert CATALOG[metric.name].labels == metric.selector.per
    assert set(metric.selector.per) <= labels
    for condition in (metric.selector.only, metric.selector.without):
        assert condition is None or condition[0] in labels
    assert metric.share_of is None or metric.share_of in CATALOG
    kinds = {CATALOG[name].kind for name in metric.selector.metrics}
    assert kinds == ({"counter"} if metric.form in {"total", "rate"} else {"gauge"})


def test_exposition_has_what_every_metric_of_the_detector_is_made_of():
    made_of = {name for metric in TABLE for name in metric.selector.metrics}
    made_of |= {metric.share_of for metric in TABLE if metric.share_of is not None}
    for metric in load_preset("peerwatch").metrics:
        if metric.fast is None:
            continue
        read = {name for name in CATALOG if name in metric.expression}
        # A name may begin with another one's.
        longest = {name for name in read if not any(name != o and name in o for o in read)}
        assert longest <= made_of, metric.name


def test_nothing_read_leaves_only_the_sign_of_life():
    assert {("fast_up",): 1} == values(FastAggregator(), [])


def test_pauses_are_summed_over_ports_and_priorities_by_direction():
    exposition = second(
        {
            "nic_pfc_pause_frames_total": pauses(1100, 70),
            "nic_pfc_pause_seconds_total": pauses(1.5, 0.25),
        },
        {
            "nic_pfc_pause_frames_total": pauses(1000, 50),
            "nic_pfc_pause_seconds_total": pauses(1.0, 0.0),
        },
    )
    assert {
        ("fast_up",): 1,
        ("fast_pfc_transmit_pause_frames_total",): 2200,
        ("fast_pfc_transmit_pause_frames_per_second",): 200,
        ("fast_pfc_receive_pause_frames_total",): 70,
        ("fast_pfc_receive_pause_frames_per_second",): 20,
        ("fast_pfc_transmit_pause_seconds_total",): 3.0,
        ("fast_pfc_transmit_pause_seconds_per_second",): 1.0,
        ("fast_pfc_receive_pause_seconds_total",): 0.25,
        ("fast_pfc_receive_pause_seconds_per_second",): 0.25,
    } == exposition


def test_traffic_is_both_directions_without_the_loopback():
    def traffic(a, lo):
        rows = [(("eth0",), a), (("eth1",), a), (("lo",), lo)]
        return {
            "host_network_transmit_bytes_total": rows,
            "host_network_receive_bytes_total": rows,
            "nic_transmit_bytes_total": [(("mlx5_0", "1"), a)],
            "nic_receive_bytes_total": [(("mlx5_0", "1"), 2 * a)],
        }

    exposition = second(traffic(150, 10**9), traffic(100, 0))
    assert {
        ("fast_up",): 1,
        ("fast_network_bytes_total",): 600,
        ("fast_network_bytes_per_second",): 200,
        ("fast_rdma_bytes_total",): 450,
        ("fast_rdma_bytes_per_second",): 150,
    } == exposition


def test_cpu_usage_is_the_busy_share_of_all_cpus():
    def modes(user, idle, iowait):
        return {
            "host_cpu_seconds_total": [(("user",), user), (("idle",), idle), (("iowait",), iowait)]
        }

    exposition = second(modes(13, 400, 90), modes(10, 100, 50), host_cpus=[((), 4)])
    assert {("fast_cpu_usage_ratio",): 0.75} == only(exposition, "fast_cpu_usage_ratio")


def test_shares_need_their_whole():
    exposition = values(
        FastAggregator(),
        [
            latest_results(
                10,
                host_memory_available_bytes=[((), 25)],
                host_memory_total_bytes=[((), 100)],
                gpu_memory_used_bytes=[(("0", "a"), 40), (("1", "b"), 40), (("2", "c"), 40)],
                gpu_memory_total_bytes=[(("0", "a"), 80), (("1", "b"), 0)],
            )
        ],
    )
    assert {
        ("fast_up",): 1,
        ("fast_memory_usage_ratio",): 0.75,
        ("fast_gpu_memory_used_ratio", "0"): 0.5,
    } == exposition


def test_gpu_values_are_by_index():
    both = [(("0", "a"), 0.25), (("1", "b"), 0.5)]
    links = [(("0", "a"), 10), (("1", "b"), 20)]
    exposition = values(
        FastAggregator(),
        [
            latest_results(
                10,
                gpu_utilization_ratio=both,
                gpu_power_watts=both,
                gpu_tensor_active_ratio=both,
                gpu_clock_hertz=[(("0", "a", "sm"), 1.5e9), (("0", "a", "memory"), 2.6e9)],
                nvlink_transmit_bytes_total=links,
                nvlink_receive_bytes_total=links,
            )
        ],
    )
    assert {
        ("fast_up",): 1,
        **{
            (f"fast_gpu_{name}", gpu): value
            for name in ("utilization_ratio", "power_watts", "tensor_active_ratio")
            for gpu, value in (("0", 0.25), ("1", 0.5))
        },
        ("fast_gpu_sm_clock_hertz", "0"): 1.5e9,
        ("fast_nvlink_bytes_total", "0"): 20,
        ("fast_nvlink_bytes_total", "1"): 40,
    } == exposition


def test_job_info_and_oldest_heartbeat_are_by_job():
    def job(gpu, job_id):
        labels = {"gpu": gpu, "uuid": "u", "job_id": job_id}
        return tuple(labels.get(label, "") for label in CATALOG["gpu_job_info"].labels)

    exposition = values(
        FastAggregator(),
        [
            latest_results(
                10,
                host_job_info=[(("a", "slurm"), 1), (("a", "torchelastic"), 1), (("b", "x"), 1)],
                gpu_job_info=[(job("0", "a"), 1), (job("1", "a"), 1), (job("1", "b"), 1)],
                rank_heartbeat_timestamp_seconds=[
                    (("a", "0"), NOW - 2),
                    (("a", "1"), NOW - 30),
                    (("b", "0"), NOW + 5),
                ],
            )
        ],
    )
    assert {
        ("fast_up",): 1,
        ("fast_job_info", "a"): 1,
        ("fast_job_info", "b"): 1,
        ("fast_gpu_job_info", "0", "a"): 1,
        ("fast_gpu_job_info", "1", "a"): 1,
        ("fast_gpu_job_info", "1", "b"): 1,
        ("fast_heartbeat_age_seconds", "a"): 30,
        # A clock that runs ahead is no sign of trouble.
        ("fast_heartbeat_age_seconds", "b"): 0,
    } == exposition


def test_age_grows_while_the_heartbeat_stands_still():
    aggregator = FastAggregator()
    report = latest_results(10, rank_heartbeat_timestamp_seconds=[(("a", "0"), NOW)])
    ages = [
        values(aggregator, [report], NOW + seconds)["fast_heartbeat_age_seconds", "a"]
        for seconds in (0, 1, 2)
    ]
    assert [0, 1, 2] == ages


def test_failed_run_gives_no_value_rather_than_an_old_one():
    aggregator = FastAggregator()
    counter = {"host_tcp_retransmitted_segments_total": [((), 5)]}
    values(aggregator, [latest_results(10, **counter, host_tcp_send_queue_bytes=[((), 768)])])
    assert {("fast_up",): 1} == values(aggregator, [latest_results(11)])


def test_rate_goes_by_the_start_of_each_run_not_by_the_tick():
    aggregator = FastAggregator()
    name = "host_tcp_retransmitted_segments_total"
    values(aggregator, [latest_results(10.0, **{name: [((), 0)]})])
    late = values(aggregator, [latest_results(11.25, **{name: [((), 100)]})])
    assert 80 == late["fast_tcp_retransmitted_segments_per_second",]


def test_collector_that_did_not_run_again_keeps_its_rate():
    aggregator = FastAggregator()
    name = "host_tcp_retransmitted_segments_total"
    values(aggregator, [latest_results(10.0, **{name: [((), 0)]})])
    report = latest_results(20.0, **{name: [((), 100)]})
    first, again = values(aggregator, [report]), values(aggregator, [report])
    assert 10 == first["fast_tcp_retransmitted_segments_per_second",]
    assert first == again


def test_value_of_what_did_not_change_is_the_same_family():
    aggregator = FastAggregator()
    report = latest_results(10, host_tcp_send_queue_bytes=[((), 768)])
    changed = latest_results(12, host_tcp_send_queue_bytes=[((), 0)])
    _, first = aggregator.families([report], NOW)
    _, again = aggregator.families([report], NOW + 1)
    _, other = aggregator.families([changed], NOW + 2)
    assert first is again is not other


@pytest.mark.parametrize(
    ("join", "expected"), [("sum", 9.0), ("max", 6.0), ("min", 1.0), ("mean", 3.0)]
)
def test_series_are_joined_as_the_table_says(join, expected):
    table = [FastMetric("fast_tcp_send_queue_bytes", Selector(("gpu_power_watts",)), join=join)]
    rows = [(("0", "a"), 1.0), (("1", "b"), 2.0), (("2", "c"), 6.0), (("3", "d"), math.nan)]
    exposition = values(FastAggregator(table), [latest_results(10, gpu_power_watts=rows)])
    assert expected == exposition["fast_tcp_send_queue_bytes",]


def test_what_joins_and_what_says_that_the_node_is_there_has_no_timestamps():
    assert {"fast_up", "fast_job_info", "fast_gpu_job_info"} == UNTIMED


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "lo"]),
            st.one_of(st.integers(-5, 10**400), st.floats()),
            max_size=3,
        ),
        max_size=8,
    )
)
def test_whatever_is_read_the_exposition_is_made(runs):
    aggregator = FastAggregator()
    for number, found in enumerate(runs):
        rows = [((device,), value) for device, value in found.items()]
        plain = [((), value) for value in found.values()][:1]
        made = values(
            aggregator,
            [
                latest_results(
                    float(number),
                    host_network_transmit_bytes_total=rows,
                    host_network_receive_bytes_total=rows,
                    host_memory_available_bytes=plain,
                    host_memory_total_bytes=plain,
                    host_cpu_seconds_total=rows,
                    host_cpus=plain,
                    rank_heartbeat_timestamp_seconds=[((*row[0], "0"), row[1]) for row in rows],
                )
            ],
        )
        assert all(math.isfinite(value) for value in made.values())
