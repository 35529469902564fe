"""What each NIC driver counts: its own names, queues and all, become the same metrics."""

from __future__ import annotations

import pytest

from fake_ethtool import FakeEthtool
from hardware_cases import FIXTURES, collected, node
from peerwatch_exporter.collector import all_metrics
from peerwatch_exporter.sources.nic.driver_table import NicDriver, Statistic
from peerwatch_exporter.sources.nic.drivers import (
    DRIVERS,
    RDMA_ERRORS,
    STATISTICS,
    DriverTableError,
    joined,
)

CATALOG = all_metrics()
H100 = FIXTURES / "h100_node"
PORT = ("mlx5_0", "1")
QUEUES = range(64)


def numbered(*names):
    """Return a table in which every statistic has another value."""
    return {name: at for at, name in enumerate(names, start=1)}


# In the order and with the neighbours in which each driver prints them.
BNXT_EN = numbered(
    *(f"[{queue}]: {what}" for queue in QUEUES for what in ("rx_ucast_packets", "rx_discards")),
    "rx_total_l4_csum_errors",
    "rx_total_ring_discards",
    "tx_total_ring_discards",
    "rx_fcs_err_frames",
    "rx_pause_frames",
    "rx_pfc_frames",
    *(f"rx_pfc_ena_frames_pri{number}" for number in range(8)),
    "rx_stat_discard",
    "tx_pause_frames",
    *(f"tx_pfc_ena_frames_pri{number}" for number in range(8)),
    "tx_stat_discard",
    "link_down_events",
    "continuous_pause_events",
    *(f"rx_bytes_cos{number}" for number in range(8)),
    *(
        f"pfc_pri{number}_rx_{what}"
        for number in range(8)
        for what in ("duration_us", "transitions")
    ),
    "rx_bits",
    "rx_pcs_symbol_err",
    "rx_corrected_bits",
    *(f"rx_discard_packets_cos{number}" for number in range(8)),
    "rx_fec_corrected_blocks",
    "rx_fec_uncorrectable_blocks",
    *(
        f"pfc_pri{number}_tx_{what}"
        for number in range(8)
        for what in ("duration_us", "transitions")
    ),
)
ICE = numbered(
    "rx_dropped",
    *(f"tx_queue_{queue}_packets" for queue in QUEUES),
    "link_xon_rx.nic",
    "link_xon_tx.nic",
    "link_xoff_rx.nic",
    "link_xoff_tx.nic",
    "tx_dropped_link_down.nic",
    "rx_dropped.nic",
    "rx_crc_errors.nic",
    "mac_local_faults.nic",
    "mac_remote_faults.nic",
    *(
        f"{side}_priority_{number}_{what}.nic"
        for side in ("tx", "rx")
        for number in range(8)
        for what in ("xon", "xoff")
    ),
)
I40E = numbered(
    "rx_dropped",
    "rx_crc_errors",
    *(f"rx-{queue}.packets" for queue in QUEUES),
    "port.rx_dropped",
    "port.tx_dropped_link_down",
    "port.rx_crc_errors",
    "port.mac_local_faults",
    "port.mac_remote_faults",
    "port.link_xon_rx",
    "port.link_xoff_rx",
    "port.link_xon_tx",
    "port.link_xoff_tx",
    *(
        f"port.{side}_priority_{number}_{what}_{side}"
        for number in range(8)
        for side in ("tx", "rx")
        for what in ("xon", "xoff")
    ),
    *(f"port.rx_priority_{number}_xon_2_xoff" for number in range(8)),
)
IONIC = numbered(
    "hw_tx_dropped",
    "hw_rx_dropped",
    "hw_rx_missed_errors",
    "frames_rx_bad_fcs",
    "frames_rx_pause",
    "frames_rx_pripause",
    "frames_rx_dropped",
    "frames_tx_pause",
    "frames_tx_pripause",
    *(f"{side}_pripause_{number}_1us_count" for side in ("tx", "rx") for number in range(8)),
    "rx_pause_1us_count",
    "rx_bits_phy",
    *(f"rx_{queue}_dropped" for queue in QUEUES),
)
# The same counter of the hardware, once for the interface and once for the port.
I40E["port.rx_crc_errors"] = I40E["rx_crc_errors"]
HNS3 = numbered(
    "mac_tx_mac_pause_num",
    "mac_rx_mac_pause_num",
    "mac_tx_pfc_pkt_num",
    *(
        f"mac_{side}_pfc_pri{number}_{what}"
        for side in ("tx", "rx")
        for what in ("pkt_num", "xoff_time")
        for number in range(8)
    ),
    "mac_rx_fcs_err_pkt_num",
    *(f"rxq{queue}_errors" for queue in QUEUES),
)
MLX4 = numbered(
    "rx_dropped",
    "rx_crc_errors",
    *(
        f"{side}_pause{what}_prio_{number}"
        for side in ("rx", "tx")
        for number in range(8)
        for what in ("", "_duration", "_transition")
    ),
    *(f"{side}_pause{what}" for side in ("rx", "tx") for what in ("", "_duration", "_transition")),
    *(f"rx{queue}_dropped" for queue in QUEUES),
)


def read(table):
    """Return the samples of the collector ethtool, of one port with these statistics."""
    with node(None, root=H100, ethtool=FakeEthtool({"eth2": table})) as h100:
        return h100.collect("ethtool")


def test_broadcom_is_exact():
    samples, raw = read(BNXT_EN), BNXT_EN

    assert 8 * 2 * 3 + 12 == len(samples)
    for name, key in (
        ("nic_global_pause_frames_total", "rx_pause_frames"),
        ("nic_global_pause_frames_total", "tx_pause_frames"),
    ):
        direction = "receive" if key.startswith("rx") else "transmit"
        assert raw[key] == samples[name, *PORT, direction]
    assert (
        raw["rx_pfc_ena_frames_pri3"]
        == samples["nic_pfc_pause_frames_total", *PORT, "receive", "3"]
    )
    assert (
        raw["pfc_pri3_tx_duration_us"] / 1e6
        == samples["nic_pfc_pause_seconds_total", *PORT, "transmit", "3"]
    )
    assert (
        raw["pfc_pri7_rx_transitions"]
        == samples["nic_pfc_pause_transitions_total", *PORT, "receive", "7"]
    )
    assert {
        "nic_receive_discards_total": raw["rx_stat_discard"],
        "nic_transmit_discards_total": raw["tx_stat_discard"],
        "nic_receive_out_of_buffer_packets_total": raw["rx_total_ring_discards"],
        "nic_phy_link_down_events_total": raw["link_down_events"],
        "nic_phy_crc_errors_total": raw["rx_fcs_err_frames"],
        "nic_phy_received_bytes_total": raw["rx_bits"] / 8,
        "nic_phy_symbol_errors_total": raw["rx_pcs_symbol_err"],
        "nic_phy_corrected_bit_errors_total": raw["rx_corrected_bits"],
        "nic_phy_fec_corrected_blocks_total": raw["rx_fec_corrected_blocks"],
        "nic_phy_fec_uncorrectable_blocks_total": raw["rx_fec_uncorrectable_blocks"],
    } == {key[0]: value for key, value in samples.items() if len(key) == 3}


@pytest.mark.parametrize(
    ("raw", "ending", "prefix"),
    [(ICE, ".nic", ""), (I40E, "", "port.")],
    ids=["ice", "i40e"],
)
def test_intel_is_exact(raw, ending, prefix):
    samples = read(raw)
    suffix = {"rx": "_rx", "tx": "_tx"} if prefix else {"rx": "", "tx": ""}
    expected = {
        ("nic_receive_discards_total", *PORT): raw[f"{prefix}rx_dropped{ending}"],
        ("nic_transmit_discards_total", *PORT): raw[f"{prefix}tx_dropped_link_down{ending}"],
        ("nic_phy_crc_errors_total", *PORT): raw[f"{prefix}rx_crc_errors{ending}"],
    }
    for side in ("local", "remote"):
        expected["nic_phy_faults_total", *PORT, side] = raw[f"{prefix}mac_{side}_faults{ending}"]
    for side, direction in (("rx", "receive"), ("tx", "transmit")):
        for what, metric in (("xoff", "frames"), ("xon", "transitions")):
            expected[f"nic_global_pause_{metric}_total", *PORT, direction] = raw[
                f"{prefix}link_{what}_{side}{ending}"
            ]
            for number in range(8):
                expected[f"nic_pfc_pause_{metric}_total", *PORT, direction, str(number)] = raw[
                    f"{prefix}{side}_priority_{number}_{what}{suffix[side]}{ending}"
                ]

    assert expected == samples


def test_names_of_the_i40e_of_long_ago_are_known_too():
    samples = read({"port.rx_priority_3_xoff": 5, "port.tx_priority_3_xon": 6})

    assert {
        ("nic_pfc_pause_frames_total", *PORT, "receive", "3"): 5,
        ("nic_pfc_pause_transitions_total", *PORT, "transmit", "3"): 6,
    } == samples


def test_pensando_is_exact():
    samples, raw = read(IONIC), IONIC

    assert 16 + 10 == len(samples)
    for number in range(8):
        for side, direction in (("rx", "receive"), ("tx", "transmit")):
            assert (
                raw[f"{side}_pripause_{number}_1us_count"] / 1e6
                == samples["nic_pfc_pause_seconds_total", *PORT, direction, str(number)]
            )
    assert (
        raw["frames_rx_pripause"] == samples["nic_pfc_pause_frames_total", *PORT, "receive", "all"]
    )
    assert raw["frames_tx_pause"] == samples["nic_global_pause_frames_total", *PORT, "transmit"]
    assert (
        raw["rx_pause_1us_count"] / 1e6
        == samples["nic_global_pause_seconds_total", *PORT, "receive"]
    )
    assert raw["frames_rx_dropped"] == samples["nic_receive_discards_total", *PORT]
    assert raw["hw_tx_dropped"] == samples["nic_transmit_discards_total", *PORT]
    assert raw["hw_rx_missed_errors"] == samples["nic_receive_out_of_buffer_packets_total", *PORT]
    assert raw["frames_rx_bad_fcs"] == samples["nic_phy_crc_errors_total", *PORT]
    assert raw["rx_bits_phy"] / 8 == samples["nic_phy_received_bytes_total", *PORT]


def test_hisilicon_is_exact():
    samples = read(HNS3)
    expected = {("nic_phy_crc_errors_total", *PORT): HNS3["mac_rx_fcs_err_pkt_num"]}
    for side, direction in (("rx", "receive"), ("tx", "transmit")):
        expected["nic_global_pause_frames_total", *PORT, direction] = HNS3[
            f"mac_{side}_mac_pause_num"
        ]
        for number in range(8):
            expected["nic_pfc_pause_frames_total", *PORT, direction, str(number)] = HNS3[
                f"mac_{side}_pfc_pri{number}_pkt_num"
            ]

    assert expected == samples


def test_connectx_3_is_exact():
    samples = read(MLX4)
    expected = {("nic_phy_crc_errors_total", *PORT): MLX4["rx_crc_errors"]}
    metrics = (("", "frames", 1), ("_duration", "seconds", 1e6), ("_transition", "transitions", 1))
    for side, direction in (("rx", "receive"), ("tx", "transmit")):
        for what, metric, divisor in metrics:
            expected[f"nic_global_pause_{metric}_total", *PORT, direction] = (
                MLX4[f"{side}_pause{what}"] / divisor
            )
            for number in range(8):
                expected[f"nic_pfc_pause_{metric}_total", *PORT, direction, str(number)] = (
                    MLX4[f"{side}_pause{what}_prio_{number}"] / divisor
                )

    assert expected == samples


RDMA = {
    "bnxt_re": {
        "rx_bytes": ("nic_receive_bytes_total",),
        "tx_pkts": ("nic_transmit_packets_total",),
        "oos_drop_count": ("nic_out_of_sequence_packets_total",),
        "rx_roce_discards": ("nic_rdma_errors_total", "rx_roce_discards"),
        "remote_access_err": ("nic_rdma_errors_total", "remote_access_err"),
    },
    "irdma": {
        "cnpSent": ("nic_cnp_sent_total",),
        "cnpHandled": ("nic_cnp_handled_total",),
        "cnpIgnored": ("nic_cnp_ignored_total",),
        "RxECNMrkd": ("nic_ecn_marked_packets_total",),
        "Rcvd Out of order packets": ("nic_out_of_sequence_packets_total",),
        "Nak Sequence Error": ("nic_rdma_errors_total", "Nak Sequence Error"),
        "ip4InDiscards": ("nic_rdma_errors_total", "ip4InDiscards"),
    },
    "ionic": {
        "rx_rdma_ucast_bytes": ("nic_receive_bytes_total",),
        "tx_rdma_ucast_pkts": ("nic_transmit_packets_total",),
        "tx_rdma_cnp_pkts": ("nic_cnp_sent_total",),
        "rx_rdma_cnp_pkts": ("nic_cnp_handled_total",),
        "rx_rdma_ecn_pkts": ("nic_ecn_marked_packets_total",),
        "resp_rx_outouf_seq": ("nic_out_of_sequence_packets_total",),
        "tx_rdma_ack_timeout": ("nic_rdma_errors_total", "tx_rdma_ack_timeout"),
        "req_tx_retry_excd_err": ("nic_rdma_errors_total", "req_tx_retry_excd_err"),
    },
    "mlx4": {
        "rq_num_oos": ("nic_out_of_sequence_packets_total",),
        "sq_num_to": ("nic_rdma_errors_total", "sq_num_to"),
    },
    "efa": {
        "rx_bytes": ("nic_receive_bytes_total",),
        "tx_bytes": ("nic_transmit_bytes_total",),
        "retrans_timeout_events": ("nic_rdma_errors_total", "retrans_timeout_events"),
        "rx_drops": ("nic_rdma_errors_total", "rx_drops"),
    },
}


@pytest.mark.parametrize("driver", RDMA)
def test_rdma_counters_of_a_driver(driver, tmp_path):
    folder = tmp_path / f"sys/class/infiniband/{driver}_0/ports/1/hw_counters"
    folder.mkdir(parents=True)
    for at, name in enumerate(RDMA[driver], start=1):
        (folder / name).write_text(f"{at}\n")
    with node(None, root=tmp_path) as bare:
        samples = {**collected(bare.collector("nic")), **collected(bare.collector("nic_errors"))}

    expected = {
        (metric, f"{driver}_0", "1", *labels): at
        for at, (metric, *labels) in enumerate(RDMA[driver].values(), start=1)
    }
    assert expected == {key: samples.get(key) for key in expected}
    errors = {key for key in samples if key[0] == "nic_rdma_errors_total"}
    assert errors == {key for key in expected if key[0] == "nic_rdma_errors_total"}


def test_counter_that_a_driver_marks_as_invalid_is_no_value(tmp_path):
    """ionic answers all ones for a counter that its firmware does not keep."""
    folder = tmp_path / "sys/class/infiniband/ionic_0/ports/1/hw_counters"
    folder.mkdir(parents=True)
    (folder / "tx_rdma_cnp_pkts").write_text(f"{2**64 - 1}\n")
    (folder / "rx_rdma_cnp_pkts").write_text("7\n")
    with node(None, root=tmp_path) as bare:
        samples = collected(bare.collector("nic"))

    assert 7 == samples["nic_cnp_handled_total", "ionic_0", "1"]
    assert ("nic_cnp_sent_total", "ionic_0", "1") not in samples


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_table_of_a_driver_is_whole(driver):
    assert driver.sources
    assert driver.statistics or driver.rdma or driver.rdma_errors
    assert all(source.startswith("drivers/") for source in driver.sources)
    for name, statistic in driver.expanded().items():
        # What ethtool's interface to the kernel has room for, with the zero at its end.
        assert len(name) < 32
        assert "{" not in name
        assert len(CATALOG[statistic.metric].labels) == 2 + len(statistic.labels)
    assert all(metric in CATALOG for metric in driver.rdma)
    # Bounded whatever the number of queues: no table has a name for each of them.
    assert len(set(driver.expanded().values())) <= 120


def test_one_name_never_means_two_things():
    first = NicDriver("a", ("drivers/a.c",), {"rx_stop": Statistic("nic_receive_discards_total")})
    other = NicDriver("b", ("drivers/b.c",), {"rx_stop": Statistic("nic_phy_crc_errors_total")})

    assert 1 == len(joined([first, first]))
    with pytest.raises(DriverTableError, match="'rx_stop' of b"):
        joined([first, other])
    assert len(RDMA_ERRORS) == len(set(RDMA_ERRORS))
    assert joined(DRIVERS) == STATISTICS
