"""How busy the units of a GPU were (GPU performance monitoring, GPM)."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

_GPU = ("gpu", "uuid")
_WINDOW = (
    "Mean of the last mean_seconds, of windows of gpu_gpm_window_seconds, 0 to 1. Hopper and "
    "later, without MIG."
)


def _ratio(name: str, what: str, number: str, labels: tuple[str, ...] = _GPU) -> MetricSpec:
    return MetricSpec(
        name,
        "gauge",
        "ratio",
        labels,
        f"{what} {_WINDOW}",
        f"nvmlGpmMetricsGet {number}",
        "Hopper",
        swings=True,
    )


SPECS: tuple[MetricSpec, ...] = (
    _ratio(
        "gpu_graphics_active_ratio",
        "Share of time with any compute or graphics work on the GPU.",
        "GRAPHICS_UTIL (1)",
    ),
    _ratio(
        "gpu_sm_active_ratio",
        "Share of the streaming multiprocessors that were busy.",
        "SM_UTIL (2)",
    ),
    _ratio(
        "gpu_sm_occupancy_ratio",
        "Warps that were resident, of those that fit.",
        "SM_OCCUPANCY (3)",
    ),
    _ratio(
        "gpu_tensor_active_ratio",
        "Share of time with work in the tensor cores: the nearest to how fast training runs.",
        "ANY_TENSOR_UTIL (5)",
    ),
    _ratio(
        "gpu_dram_active_ratio",
        "Memory bandwidth used, of what there is.",
        "DRAM_BW_UTIL (10)",
    ),
    _ratio(
        "gpu_pipe_active_ratio",
        "Share of time with work in a pipe other than tensor: fp64, fp32, fp16 or int.",
        "FP64_UTIL, FP32_UTIL, FP16_UTIL (11-13), INTEGER_UTIL (4)",
        (*_GPU, "pipe"),
    ),
    MetricSpec(
        "gpu_gpm_window_seconds",
        "gauge",
        "seconds",
        _GPU,
        "Time between the two samples that the activity ratios are the mean of.",
        "nvmlGpmSampleGet",
        hardware="Hopper",
    ),
)
