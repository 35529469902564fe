"""The scenarios of the simulated node: one entry each, declared in the words of ``scenario``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.simulated_node.scenario import (
    ALL_GPUS,
    Change,
    GpuFault,
    LogLine,
    NicFault,
    Scenario,
    Xid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOREVER = float("inf")
_ALL_NICS = tuple(range(8))

SCENARIOS: Mapping[str, Scenario] = {
    "healthy": Scenario("8 GPUs train, nothing is wrong"),
    "idle": Scenario("the job ends; the node is idle and healthy", phase=Phase.HALT),
    "lost_gpu": Scenario(
        "GPU 5 falls off the bus (XID 79); the job waits for it in a collective",
        phase=Phase.WAIT,
        gpus=(GpuFault((5,), state="lost"),),
        xids=(
            Xid(0, 5, 79, "pid=4105, name=python, GPU has fallen off the bus.", has_event=False),
        ),
        log=(
            LogLine(0.4, "NVRM: GPU {gpu5}: GPU serial number is 1653323000125."),
            LogLine(1, "pcieport {port5}: AER: Uncorrectable (Fatal) error message received"),
        ),
    ),
    "hung_gpu": Scenario(
        "calls about GPU 3 no longer return from the driver (XID 119, GSP timeout)",
        phase=Phase.WAIT,
        gpus=(GpuFault((3,), state="hung"),),
        xids=(
            Xid(
                6,
                3,
                119,
                "pid=4103, name=python, Timeout after 6s of waiting for RPC response from GPU3 "
                "GSP! Expected function 76 (GSP_RM_CONTROL) (0x20803032 0x594).",
                has_event=False,
            ),
        ),
    ),
    "pcie_downgrade": Scenario(
        "the PCIe link of GPU 2 falls from generation 5 x16 to generation 3 x8, with replays",
        speed=0.62,
        gpus=(
            GpuFault(
                (2,),
                pcie=(3, 8),
                values={
                    "pcie_replays": Change(per_second=55.0),
                    "pcie_recoveries": Change(at_once=3, per_second=0.05),
                    "pcie_correctable": Change(per_second=60.0),
                    "pcie_bad_tlp": Change(per_second=40.0),
                },
                factors={"busy": 0.99},
            ),
        ),
        aer={2: {"BadTLP": 40.0, "BadDLLP": 12.0, "Timeout": 0.2}},
        log=(
            LogLine(0.5, "pcieport {port2}: AER: Correctable error message received from {gpu2}"),
        ),
    ),
    "pfc_storm": Scenario(
        "mlx5_1 cannot empty its buffer: it stops its peer by PFC and the whole job with it",
        speed=0.5,
        nics=(
            NicFault(
                (1,),
                counters={
                    "tx_prio3_pause": 42000.0,
                    "tx_prio3_pause_duration": 380000.0,
                    "tx_prio3_pause_transition": 21000.0,
                    "tx_global_pause": 42000.0,
                    "tx_global_pause_duration": 380000.0,
                    "tx_pause_storm_warning_events": 0.2,
                    "tx_pause_storm_error_events": 0.05,
                    "rx_prio3_buf_discard": 85.0,
                    "rx_discards_phy": 85.0,
                    "outbound_pci_stalled_wr_events": 0.85,
                    "outbound_pci_buffer_overflow": 300.0,
                    "out_of_buffer": 12.0,
                    "out_of_sequence": 240.0,
                    "packet_seq_err": 180.0,
                    "port_xmit_wait": 4.0e6,
                },
            ),
        ),
    ),
    "thermal_throttle": Scenario(
        "GPU 6 overheats and lowers its clock; the other ranks wait for it in every step",
        speed=0.74,
        gpus=(
            GpuFault(
                (6,),
                celsius=27.0,
                megahertz=1230,
                reasons={"hw_slowdown": 0.7, "hw_thermal": 0.7, "sw_thermal": 0.25},
                values={"thermal_violation": Change(per_second=0.7e9)},
                factors={"power": 0.72, "tensor": 0.9},
            ),
        ),
    ),
    "power_brake": Scenario(
        "the power supply asks all GPUs to brake; clocks and power fall together",
        speed=0.55,
        gpus=(
            GpuFault(
                tuple(ALL_GPUS),
                megahertz=990,
                reasons={"hw_slowdown": 0.9, "hw_power_brake": 0.9},
                values={"board_limit": Change(per_second=0.9e9)},
                factors={"power": 0.55},
            ),
        ),
    ),
    "nvlink_errors": Scenario(
        "link 7 of GPU 4 has CRC errors and replays, then goes down (XID 74, SXID on the switch)",
        speed=0.82,
        gpus=(
            GpuFault(
                (4,),
                values={
                    "nvlink_replay/7": Change(per_second=31.0),
                    "nvlink_recovery/7": Change(at_once=1, per_second=0.2),
                    "nvlink_crc/7": Change(per_second=52.0),
                    "nvlink_state/7": Change(to=0),
                    "fabric_health": Change(to=0b01_01_0001_10_10_10_01),
                },
                factors={"nvlink": 0.93},
            ),
        ),
        xids=(
            Xid(
                2,
                4,
                74,
                "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 7"
                "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            ),
        ),
        log=(
            LogLine(
                1,
                "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, "
                "Link 32 egress non-posted PRIV error (First)",
            ),
            LogLine(
                2,
                "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 32 LTSSM Fault Up",
            ),
        ),
    ),
    "ecc_error": Scenario(
        "GPU 1 has an uncorrectable memory error: a row waits to be remapped (XID 63, 94)",
        phase=Phase.WAIT,
        gpus=(
            GpuFault(
                (1,),
                values={
                    "ecc_dram_uncorrected_volatile": Change(at_once=1),
                    "ecc_dram_uncorrected_aggregate": Change(at_once=1),
                    "ecc_uncorrected_volatile": Change(at_once=1),
                    "ecc_uncorrected_aggregate": Change(at_once=1),
                    "ecc_dram_corrected_volatile": Change(per_second=0.4),
                    "ecc_corrected_volatile": Change(per_second=0.4),
                    "remapped_uncorrectable": Change(at_once=1),
                    "remap_pending": Change(to=1),
                    "recovery_action": Change(to=4),
                    "repair_channel": Change(to=1),
                },
            ),
        ),
        xids=(
            Xid(
                0,
                1,
                63,
                "pid='<unknown>', name=<unknown>, Row Remapper: New row (0x000000000ac) "
                "marked for remapping, reset gpu to activate.",
            ),
            Xid(0.2, 1, 94, "pid=4101, name=python, Contained: SM (0x1). RST: No, D-RST: No"),
            Xid(
                0.5, 1, 154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
            ),
        ),
    ),
    "nic_down": Scenario(
        "the link of mlx5_3 goes down and stays down; the job waits for its traffic",
        phase=Phase.WAIT,
        nics=(
            NicFault(
                (3,),
                down_seconds=_FOREVER,
                counters={"local_ack_timeout_err": 9.0, "req_cqe_error": 1.5},
            ),
        ),
        log=(
            LogLine(0, "mlx5_core {nic3}: Port module event: module 0, Cable unplugged"),
            LogLine(0.1, "mlx5_core {nic3} eth5: Link down"),
        ),
    ),
    "nic_flap": Scenario(
        "the link of mlx5_6 goes down for 6 s in every 30 s",
        speed=0.7,
        nics=(
            NicFault(
                (6,),
                down_seconds=6.0,
                every_seconds=30.0,
                counters={
                    "symbol_error": 4.0,
                    "local_ack_timeout_err": 2.0,
                    "out_of_sequence": 20.0,
                    "roce_adp_retrans": 15.0,
                    "rx_corrected_bits_phy": 9000.0,
                    "rx_pcs_symbol_err_phy": 6.0,
                    "rx_crc_errors_phy": 3.0,
                },
            ),
        ),
        log=(
            LogLine(0, "mlx5_core {nic6} eth8: Link down", every=30.0),
            LogLine(6, "mlx5_core {nic6} eth8: Link up", every=30.0, level=6),
        ),
    ),
    "ecn_congestion": Scenario(
        "the fabric is congested: packets are marked, NICs slow down, nothing is broken",
        speed=0.8,
        nics=(
            NicFault(
                _ALL_NICS,
                counters={
                    "np_ecn_marked_roce_packets": 5200.0,
                    "np_cnp_sent": 2600.0,
                    "rp_cnp_handled": 2900.0,
                    "rx_prio3_marked": 5200.0,
                    "rx_prio3_pause": 900.0,
                    "rx_prio3_pause_duration": 21000.0,
                    "rx_prio3_pause_transition": 450.0,
                    "port_xmit_wait": 9.0e5,
                },
            ),
        ),
    ),
    "hung_rank": Scenario(
        "local rank 5 hangs in the file system; the other ranks wait in the collective",
        phase=Phase.WAIT,
        gpus=(GpuFault((5,), factors={"busy": 0.0, "sm": 0.0, "occupancy": 0.0, "power": 0.3}),),
        stuck_rank=5,
        host={"pressure_io": 0.5},
        log=(LogLine(123, "INFO: task python:4105 blocked for more than 122 seconds."),),
    ),
    "waiting": Scenario(
        "another node of the job hangs; this one is healthy and waits for it in a collective",
        phase=Phase.WAIT,
    ),
    "slow_tcp": Scenario(
        "TCP to the storage loses segments: input arrives late and every step takes longer",
        speed=0.6,
        host={
            "tcp_retransmitted": 850.0,
            "tcp_timeouts": 24.0,
            "tcp_queue_bytes": 3.0e6,
            "pressure_io": 0.35,
            "storage_drops": 40.0,
        },
    ),
}

# What happens in each, in a sentence.
SUMMARIES: Mapping[str, str] = {name: scenario.summary for name, scenario in SCENARIOS.items()}
