"""XID and SXID metrics: errors that the NVIDIA driver reports in the kernel log."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_XID = ("gpu", "pci_bus_id", "xid")
_SXID = ("switch", "sxid", "severity")

_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_xid_errors_total",
        "counter",
        "1",
        _XID,
        "XID errors since the oldest line of the kernel log, by code; those of the same code "
        "within 5 s count once, and so does what the log and the driver's events both report. The "
        "critical codes of every GPU start at 0: those of class hardware, and 63 and 94. Beyond "
        "16 unknown codes the label is other.",
        "/dev/kmsg, 'NVRM: Xid'; nvmlEventSetWait_v2",
    ),
    MetricSpec(
        "gpu_xid_last_timestamp_seconds",
        "gauge",
        "seconds",
        _XID,
        "When the last XID error of this code was logged (Unix time).",
        "/dev/kmsg, 'NVRM: Xid'; nvmlEventSetWait_v2",
    ),
    MetricSpec(
        "gpu_xid_info",
        "gauge",
        "1",
        ("xid", "mnemonic", "class", "action"),
        "What an XID code means: NVIDIA's name, its class (hardware: drain now; degraded: drain "
        "when the job ends; watch; application; ignore) and what to do. Value is always 1; join on "
        "(node, xid). There is one for each code of gpu_xid_errors_total.",
        "catalog/xid_codes.py, xid.severity",
    ),
    MetricSpec(
        "gpu_xid_class_errors_total",
        "counter",
        "1",
        ("gpu", "pci_bus_id", "class"),
        "XID errors by class, each from 0. The class is that of the line where the line says more "
        "than its code: a fatal NVLink error (144 to 150), the recovery that XID 154 asks for. "
        "Lines of the same code and class within 5 s count once.",
        "/dev/kmsg, 'NVRM: Xid'",
    ),
    MetricSpec(
        "gpu_xid_recovery_action_info",
        "gauge",
        "1",
        ("gpu", "pci_bus_id", "action"),
        "Recovery that the driver last asked for in the log, also of a GPU that no longer answers: "
        "none, gpu_reset, node_reboot, drain_p2p, drain_and_reset, "
        "recover_imex_domain, bus_reset, system_reboot or unknown. Value is always 1.",
        "/dev/kmsg, 'NVRM: Xid' 154",
    ),
    MetricSpec(
        "nvswitch_sxid_errors_total",
        "counter",
        "1",
        _SXID,
        "SXID errors of an NVSwitch in the kernel log since its oldest line, by code and severity "
        "(fatal or nonfatal, as logged); repeats within 5 s count once. A series begins with its "
        "first error, which increase() cannot see: compare the last timestamp with time().",
        "/dev/kmsg, 'nvidia-nvswitchN: SXid'",
        hardware="NVSwitch",
    ),
    MetricSpec(
        "nvswitch_sxid_last_timestamp_seconds",
        "gauge",
        "seconds",
        _SXID,
        "When the last SXID error of this code was logged (Unix time).",
        "/dev/kmsg, 'nvidia-nvswitchN: SXid'",
        hardware="NVSwitch",
    ),
    MetricSpec(
        "nvswitch_sxid_info",
        "gauge",
        "1",
        ("sxid", "meaning", "class", "action"),
        "What an SXID code means, its class as in gpu_xid_info, and what to do. Value is always 1; "
        "join on (node, sxid). There is one for each code of nvswitch_sxid_errors_total.",
        "catalog/sxid_codes.py",
        hardware="NVSwitch",
    ),
)

SPECS: tuple[MetricSpec, ...] = needing("NVIDIA GPU", _SPECS)
