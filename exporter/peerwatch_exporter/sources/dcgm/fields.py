"""DCGM's profiling fields by number, which stayed when their names changed (DCGM 2 to 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# dcgm_fields.h: DCGM_FI_PROF_GR_ENGINE_ACTIVE, SM_ACTIVE, SM_OCCUPANCY, PIPE_TENSOR_ACTIVE,
# DRAM_ACTIVE.
RATIOS: Mapping[str, int] = {
    "graphics": 1001,
    "sm": 1002,
    "sm_occupancy": 1003,
    "tensor": 1004,
    "dram": 1005,
}
# PIPE_FP64_ACTIVE, PIPE_FP32_ACTIVE, PIPE_FP16_ACTIVE, PIPE_INT_ACTIVE (DCGM 3.1 on).
PIPES: Mapping[str, int] = {"fp64": 1006, "fp32": 1007, "fp16": 1008, "int": 1016}
# PCIE_TX_BYTES, PCIE_RX_BYTES: bytes per second, as seen from the GPU.
PCIE_RATES: Mapping[str, int] = {"transmit": 1009, "receive": 1010}

ALL = (*RATIOS.values(), *PIPES.values(), *PCIE_RATES.values())
# What is asked for in turn, until DCGM accepts it: an older one refuses a field that it does not
# know, and some GPUs cannot count all of them at once.
CHOICES = (ALL, tuple(field for field in ALL if field != PIPES["int"]), tuple(RATIOS.values()))
