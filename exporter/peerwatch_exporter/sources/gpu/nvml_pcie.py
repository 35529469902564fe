"""The GPU's own PCIe link as NVML knows it.

``nvmlDeviceGetPcieThroughput`` is not used: it samples for 20 ms per direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.gpu.readings import PcieBytes, PcieLink

if TYPE_CHECKING:
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

# Field ids of nvml.h.
_TRANSMIT, _RECEIVE = 197, 198
_REPLAYS = 94
_ERRORS = {
    "replay_rollover": 95,
    "l0_to_recovery": 169,
    "correctable": 173,
    "naks_received": 174,
    "receiver": 175,
    "bad_tlp": 176,
    "naks_sent": 177,
    "bad_dllp": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_request": 181,
    "lcrc": 182,
    "lane": 183,
}
_BYTE_FIELDS = ((_TRANSMIT, 0), (_RECEIVE, 0))
_LINK_FIELDS = tuple((number, 0) for number in (_REPLAYS, *_ERRORS.values()))


def read_bytes(gpu: Gpu) -> PcieBytes:
    """Return the raw byte counters.

    Raises
    ------
    GpuLostError
        If the GPU is lost.
    """
    fields = gpu.fields(_BYTE_FIELDS)
    return PcieBytes(fields.get((_TRANSMIT, 0)), fields.get((_RECEIVE, 0)))


def read_link(gpu: Gpu) -> PcieLink:
    """Return generation, width and errors of the link.

    Raises
    ------
    GpuLostError
        If the GPU is lost.
    """
    fields = gpu.fields(_LINK_FIELDS)
    replays = fields.get((_REPLAYS, 0))
    return PcieLink(
        generation=gpu.call("nvmlDeviceGetCurrPcieLinkGeneration"),
        generation_max=gpu.call("nvmlDeviceGetMaxPcieLinkGeneration"),
        width_lanes=gpu.call("nvmlDeviceGetCurrPcieLinkWidth"),
        width_lanes_max=gpu.call("nvmlDeviceGetMaxPcieLinkWidth"),
        replays=gpu.call("nvmlDeviceGetPcieReplayCounter") if replays is None else replays,
        errors={
            kind: fields[number, 0] for kind, number in _ERRORS.items() if (number, 0) in fields
        },
    )
