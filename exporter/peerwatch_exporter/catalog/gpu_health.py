"""What a GPU says about its own health: memory errors, repairs, and what has to be done."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_GPU = ("gpu", "uuid")

_MEMORY: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_ecc_errors_total",
        "counter",
        "1",
        ("gpu", "uuid", "severity", "location", "scope"),
        "Memory errors found by ECC. Severity corrected does no harm by itself, uncorrected ends "
        "the job. Location is dram and sram; older GPUs have l1, l2, register_file, texture and "
        "cbu for sram; all where there is but one sum. Scope volatile counts from the last driver "
        "load, aggregate over the board's life.",
        "NVML_FI_DEV_ECC_* (3-28), nvmlDeviceGetMemoryErrorCounter",
    ),
    MetricSpec(
        "gpu_sram_ecc_threshold_exceeded",
        "gauge",
        "1",
        _GPU,
        "1 if the on-chip memory had so many uncorrected errors that the board is to be replaced. "
        "Ampere and later; as root only.",
        "nvmlDeviceGetSramEccErrorStatus .bThresholdExceeded",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_remapped_rows",
        "gauge",
        "1",
        ("gpu", "uuid", "cause"),
        "Memory rows replaced by spare ones, by cause correctable or uncorrectable. Ampere and "
        "later.",
        "NVML_FI_DEV_REMAPPED_{COR,UNC} (142, 143), else nvmlDeviceGetRemappedRows",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_row_remap_pending",
        "gauge",
        "1",
        _GPU,
        "1 if a row is to be replaced at the next reset: reset the GPU when its job has ended.",
        "NVML_FI_DEV_REMAPPED_PENDING (144), else nvmlDeviceGetRemappedRows",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_row_remap_failed",
        "gauge",
        "1",
        _GPU,
        "1 if a row could not be replaced: take the GPU out of service and have it replaced.",
        "NVML_FI_DEV_REMAPPED_FAILURE (145), else nvmlDeviceGetRemappedRows",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_row_remap_banks",
        "gauge",
        "1",
        ("gpu", "uuid", "availability"),
        "Memory banks by the spare rows they have left: max, high, partial, low or none. The next "
        "bad row of a bank with none cannot be replaced.",
        "nvmlDeviceGetRowRemapperHistogram",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_retired_pages",
        "gauge",
        "1",
        ("gpu", "uuid", "cause"),
        "Memory pages no longer used, by cause multiple_single_bit or double_bit. Before Ampere, "
        "which remaps rows instead.",
        "NVML_FI_DEV_RETIRED_{SBE,DBE} (29, 30)",
        hardware="before Ampere",
    ),
    MetricSpec(
        "gpu_page_retirement_pending",
        "gauge",
        "1",
        _GPU,
        "1 if a bad page is still in use until the next reset. Before Ampere.",
        "NVML_FI_DEV_RETIRED_PENDING (31)",
        hardware="before Ampere",
    ),
    MetricSpec(
        "gpu_unrepairable_memory",
        "gauge",
        "1",
        _GPU,
        "1 if memory is damaged beyond repair: have the board replaced. Hopper and later, with a "
        "driver of 590 or newer.",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        hardware="Hopper",
    ),
)

_REPAIR: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_repair_pending",
        "gauge",
        "1",
        ("gpu", "uuid", "unit"),
        "1 if the next reset repairs a unit: channel (memory) or tpc (compute). Ampere and later.",
        "nvmlDeviceGetRepairStatus",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_recovery_action",
        "gauge",
        "1",
        _GPU,
        "What the driver wants done: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain peer-to-peer "
        "traffic, 4 drain and reset, 5 recover the IMEX domain, 6 bus reset, 7 system reboot.",
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (230)",
    ),
    MetricSpec(
        "gpu_recovery_action_info",
        "gauge",
        "1",
        ("gpu", "uuid", "action"),
        "The same in words: none, gpu_reset, node_reboot, drain_p2p, drain_and_reset, "
        "recover_imex_domain, bus_reset, system_reboot, or unknown. Value is always 1.",
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (230)",
    ),
    MetricSpec(
        "gpu_fabric_state",
        "gauge",
        "1",
        _GPU,
        "The GPU in its NVSwitch fabric: 0 has none, 1 not registered yet, 2 registering, 3 "
        "registered. Jobs over NVLink fail on a GPU that stays at 1 or 2: look at the Fabric "
        "Manager.",
        "nvmlDeviceGetGpuFabricInfoV .state",
        "Hopper with NVSwitch",
    ),
    MetricSpec(
        "gpu_fabric_health",
        "gauge",
        "1",
        ("gpu", "uuid", "condition"),
        "1 while something is wrong with the GPU's place in the NVSwitch fabric: "
        "degraded_bandwidth, route_recovery, route_unhealthy, access_timeout_recovery, "
        "incorrect_configuration or manager_disconnected. Those the driver cannot tell are absent.",
        "nvmlDeviceGetGpuFabricInfoV .healthMask",
        "Hopper with NVSwitch",
    ),
    MetricSpec(
        "gpus_expected",
        "gauge",
        "1",
        (),
        "GPUs that the node should have: the setting gpu.expected_count, else the most that the "
        "driver listed since the exporter started. Compare with gpus_visible.",
        "setting gpu.expected_count, nvmlDeviceGetCount_v2",
    ),
)

SPECS: tuple[MetricSpec, ...] = needing("NVIDIA GPU", _MEMORY + _REPAIR)
