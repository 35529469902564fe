"""Which hardware or software a metric needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_common.metrics.spec import MetricSpec

# The words of MetricSpec.hardware; every generation of GPUs includes the later ones.
HARDWARE: Mapping[str, str] = {
    "NVIDIA GPU": "any NVIDIA GPU with its driver",
    "NVIDIA GPU, no MIG": "any NVIDIA GPU that is not split into instances",
    "NVIDIA GPU with MIG": "NVIDIA GPUs that are split into instances",
    "NVIDIA driver": "the NVIDIA driver, whatever the GPU",
    "before Ampere": "NVIDIA GPUs older than Ampere",
    "Volta": "NVIDIA GPUs from Volta on (V100)",
    "Ampere": "NVIDIA GPUs from Ampere on (A100)",
    "Hopper": "NVIDIA GPUs from Hopper on (H100, H200), without MIG",
    "Hopper with NVSwitch": "NVIDIA GPUs from Hopper on, joined by NVSwitches",
    "NVLink": "NVIDIA GPUs with NVLink",
    "NVLink, Ampere to Hopper": "NVIDIA GPUs with NVLink of these generations",
    "NVLink, Blackwell": "NVIDIA GPUs with NVLink from Blackwell on (B200)",
    "NVLink-C2C": "NVIDIA GPUs beside a Grace CPU (GH200, GB200)",
    "NVSwitch": "nodes with NVSwitches that the node's own driver serves",
    "RDMA NIC": "any NIC below /sys/class/infiniband",
    "RDMA NIC and GPU": "both, on PCIe",
    "GPU or NIC on PCIe": "an NVIDIA GPU or an RDMA NIC on PCIe",
    "PCIe AER": "the same, where the kernel handles their error reports",
    "NIC statistics": "NICs with one of the drivers mlx5, mlx4, bnxt_en, ice, i40e, ionic, hns3, "
    "each as far as it counts it",
    "RoCE": "NICs with RoCE whose driver counts it: mlx5, bnxt_re, irdma, ionic",
    "Broadcom NIC": "Broadcom NICs with their driver bnxt_en",
    "Intel NIC": "Intel NICs with their driver ice or i40e",
    "mlx5": "NVIDIA (Mellanox) NICs from ConnectX-4 on, with their driver mlx5",
    "mlx5, RoCE": "the same, with RoCE and not InfiniBand",
    "systemd": "systemd, and its bus within reach of the exporter",
    "bond": "interfaces that are joined to a bond",
    "EDAC driver": "a memory controller that an EDAC driver of the kernel knows",
    "Linux 4.20": "a kernel from 4.20 on with pressure stall information (PSI)",
    "Linux 6.13": "a kernel from 6.13 on",
    "training job": "a training job whose processes, files or scheduler name it",
    "collectives": "a training job whose collectives are reported, see docs/collectives.md",
    "logs": "logs that are read (logs.enabled), see docs/exporter.md",
    "pings": "pings that are switched on (pings.enabled), see docs/pings.md",
    "checks": "results of peerwatch-check on the node, see docs/checks.md",
    "heartbeat": "a training job that writes heartbeat files",
    "spans": "a training job whose hook keeps spans (PEERWATCH_SPANS=1)",
}


def needing(hardware: str, *specs: MetricSpec) -> tuple[MetricSpec, ...]:
    """Return the specs, with ``hardware`` for those that name none themselves."""
    return tuple(replace(spec, hardware=spec.hardware or hardware) for spec in specs)
