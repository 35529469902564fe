"""What can be wrong with a node, and how bad it is: one table for all programs and rules.

Severity ``high`` means: take the node out now, it breaks jobs. ``low`` means: drain it when its job
has ended. High are the conditions that Meta's health checks call so (Kokolis et al., Revisiting
Reliability in Large-Scale Machine Learning Research Clusters, 2025): a GPU that is not accessible,
NVLink errors, uncorrectable ECC errors, failed row remaps, PCIe and InfiniBand link errors, errors
of block devices, missing mounts; everything else is low. What we added to them says so.

It is another question than the severity of an alert, which says whether a person is woken.
"""

from __future__ import annotations

from dataclasses import dataclass

from peerwatch_common.check_results.record import Severity

META = "Meta"
OURS = "added here"


@dataclass(frozen=True, slots=True)
class HealthCondition:
    """One thing that can be wrong with a node.

    Parameters
    ----------
    name
        As checks name it.
    severity
        ``high``: take the node out now; ``low``: when its job has ended.
    meaning
        What it is, in a line.
    alerts
        Alerts that say it of a node; an alert says one condition.
    source
        Whose the severity is: ``Meta``, or ``added here``.
    """

    name: str
    severity: Severity
    meaning: str
    alerts: tuple[str, ...] = ()
    source: str = META


CONDITIONS: tuple[HealthCondition, ...] = (
    HealthCondition(
        "gpu_inaccessible",
        "high",
        "a GPU is missing, lost, without a driver, or gives no context",
        ("PeerwatchGpuMissing", "PeerwatchPcieDeviceGone", "PeerwatchXidHardware",
         "PeerwatchGpuRecoveryAction", "PeerwatchGpuDriverHung"),
    ),
    HealthCondition(
        "nvlink_errors",
        "high",
        "an NVLink or NVSwitch is down, slow or counts errors",
        ("PeerwatchNvlinkDown", "PeerwatchNvlinkErrors", "PeerwatchSxidFatal",
         "PeerwatchGpuFabricUnhealthy"),
    ),
    HealthCondition(
        "uncorrectable_ecc",
        "high",
        "memory of a GPU or of the host has uncorrectable errors",
        ("PeerwatchHostMemoryErrors",),
    ),
    HealthCondition(
        "row_remap_failed",
        "high",
        "memory of a GPU cannot be repaired any more",
        ("PeerwatchGpuMemoryDefective",),
    ),
    HealthCondition(
        "pcie_link_errors",
        "high",
        "a PCIe link counts errors, or has fewer lanes or less speed than it can have",
        ("PeerwatchPcieErrors", "PeerwatchPcieDowntrained"),
    ),
    HealthCondition(
        "network_link_errors",
        "high",
        "a link of the training network is down, slow, loses packets or is interrupted",
        ("PeerwatchNicLinkDown", "PeerwatchNicLinkFlap", "PeerwatchNicCableErrors",
         "PeerwatchNicTransportErrors", "PeerwatchNicSlow", "PeerwatchNicHealth"),
    ),
    HealthCondition(
        "block_device_errors",
        "high",
        "a disk returns errors, or its file system has become read-only",
        ("PeerwatchHostFilesystemReadOnly",),
    ),
    HealthCondition(
        "missing_mount",
        "high",
        "a file system is not mounted, or does not answer",
        ("PeerwatchHostFilesystemUnresponsive",),
    ),
    HealthCondition(
        "hardware_differs",
        "high",
        "GPUs, NICs or memory are fewer or others than the node's kind has",
        source=OURS,
    ),
    HealthCondition(
        "wrong_results",
        "high",
        "a GPU, CPU, memory, disk or link changes bits",
        source=OURS,
    ),
    HealthCondition(
        "slow_with_peers",
        "high",
        "the node holds up a job: with several partners it is slower than its peers, or is silent",
        ("PeerwatchFaultyNode", "PeerwatchNodeAbsent", "PeerwatchNodeSlowsJob"),
        OURS,
    ),
    HealthCondition(
        "slow_gpu",
        "low",
        "a GPU computes slowly: clocks, power or heat",
        ("PeerwatchGpuThermalThrottling", "PeerwatchGpuPowerThrottling",
         "PeerwatchGpuTemperatureHigh"),
    ),
    HealthCondition(
        "slow_gpu_memory",
        "high",
        "memory of a GPU is slow: remapped rows, corrected errors or low clocks",
        source=OURS,
    ),
    HealthCondition(
        "gpu_reset_pending",
        "low",
        "a GPU repairs itself when it is next reset",
        ("PeerwatchGpuResetPending", "PeerwatchXidDegraded", "PeerwatchSxidDegraded"),
    ),
    HealthCondition("slow_host", "low", "CPUs or memory of the host are slow"),
    HealthCondition(
        "corrected_memory_errors",
        "low",
        "memory of the host corrects many errors",
        ("PeerwatchHostMemoryCorrected",),
    ),
    HealthCondition(
        "slow_storage",
        "low",
        "a disk or file system is slow",
        ("PeerwatchHostStorageSlow",),
    ),
    HealthCondition(
        "filesystem_full",
        "low",
        "a file system has no space or inodes left",
        ("PeerwatchHostFilesystemFull",),
    ),
    HealthCondition(
        "service_down",
        "low",
        "a service that jobs need does not run, or a unit has failed",
        ("PeerwatchHostUnitFailed",),
    ),
    HealthCondition(
        "clock_wrong",
        "low",
        "the clock is not synchronised",
        ("PeerwatchHostClockUnsynchronized", "PeerwatchHostClockOffset"),
    ),
    HealthCondition(
        "settings_differ",
        "low",
        "versions or settings are others than those of the node's peers or kind",
        ("PeerwatchConfigMinority",),
    ),
    HealthCondition(
        "processes_left",
        "low",
        "processes of earlier jobs are left, or are stuck in the kernel",
        ("PeerwatchHostHungTasks",),
    ),
)  # fmt: skip
# What the classes of XIDs ask for (docs/xid.md); those that are not here say nothing of the node.
XID_CLASSES: dict[str, Severity] = {"hardware": "high", "degraded": "low"}
_BY_NAME = {each.name: each for each in CONDITIONS}
_BY_ALERT = {alert: each for each in CONDITIONS for alert in each.alerts}


def severity_of(name: str) -> Severity:
    """Return how bad a condition is.

    Raises
    ------
    KeyError
        If there is no such condition.
    """
    return _BY_NAME[name].severity


def condition_of_alert(alert: str) -> HealthCondition | None:
    """Return what an alert says of a node; None: it says nothing of one, or of which kind."""
    return _BY_ALERT.get(alert)
