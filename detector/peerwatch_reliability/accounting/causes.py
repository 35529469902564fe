"""Causes of failure: which part of a node each observation speaks of, and whose fault it can be.

The classes and domains are those of Kokolis et al. (arXiv 2410.21680), table 1: a user's program,
system software, hardware. An NCCL time-out has no domain of its own: it is what others see of a
failure, never its root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from peerwatch_reliability.records import Evidence

Domain = Literal["user", "system", "hardware"]


@dataclass(frozen=True, slots=True)
class Cause:
    """A class of failure.

    Parameters
    ----------
    name
        As a label has it.
    domains
        Whose fault it can be.
    is_proximal
        Whether it is only seen of another failure.
    """

    name: str
    domains: frozenset[Domain]
    is_proximal: bool = False


def _cause(name: str, *domains: Domain, is_proximal: bool = False) -> Cause:
    return Cause(name, frozenset(domains), is_proximal)


GPU_UNAVAILABLE = _cause("gpu_unavailable", "system", "hardware")
NODE_FAIL = _cause("node_fail", "system", "hardware")
NCCL_TIMEOUT = _cause("nccl_timeout", "user", "system", "hardware", is_proximal=True)
OTHER_HARDWARE = _cause("other_hardware", "hardware")
SYSTEM_SERVICE = _cause("system_service", "user", "system", "hardware")
USER = _cause("user_program", "user")
UNKNOWN = _cause("unknown", "user", "system", "hardware")

# The first expression that is found in what was observed names its cause.
_BY_NAME: tuple[tuple[str, Cause], ...] = (
    (r"nccl_?timeout|watchdog|collective_timeout", NCCL_TIMEOUT),
    (r"nvlink|nvswitch|fabric_manager", _cause("nvlink", "hardware")),
    (r"out_of_memory|oom", _cause("out_of_memory", "user")),
    (r"ecc|remap|retired_page|gpu_memory|hbm", _cause("gpu_memory", "hardware")),
    (
        r"infiniband|rdma|ib_|nic|link_|transport|pfc|roce",
        _cause("network_link", "hardware"),
    ),
    (r"ethernet|eth_|bond", _cause("ethernet_link", "hardware")),
    (r"pcie|pci_|\bpci\b|h2d|d2h", _cause("pcie", "hardware")),
    (r"driver|gsp|vbios|firmware|inforom", _cause("gpu_driver", "system")),
    (r"mount|nfs|lustre|filesystem|storage|disk|blockdev|nvme", _cause("filesystem", "system")),
    (r"dimm|host_memory|main_memory|memory", _cause("main_memory", "hardware")),
    (r"gpu|cuda|gemm|thermal|temperature|clock|power", GPU_UNAVAILABLE),
    (r"fan|psu|ipmi|sel", OTHER_HARDWARE),
    (r"service|systemd|unit|kernel|zombie|dstate|time_sync|cpu", SYSTEM_SERVICE),
    (r"python|exception|user|traceback|assert", USER),
)
_PATTERNS = tuple((re.compile(pattern), cause) for pattern, cause in _BY_NAME)

_XIDS: dict[Cause, frozenset[int]] = {
    _cause("gpu_memory", "hardware"): frozenset(
        {48, 57, 58, 63, 64, 92, 94, 95, 140, 156, 157, 168, 171, 172}
    ),
    _cause("nvlink", "hardware"): frozenset({74, 121, 136, *range(144, 151), 155, 163, 166, 170}),
    _cause("pcie", "hardware"): frozenset({79, 167}),
    _cause("gpu_driver", "system"): frozenset(
        {61, 62, 109, 110, 119, 120, 122, 123, 143, 158, 169}
    ),
}
_OF_XID = {code: cause for cause, codes in _XIDS.items() for code in codes}

CAUSES = tuple(dict.fromkeys((*(cause for _, cause in _BY_NAME), NODE_FAIL, UNKNOWN)))


def cause_of(evidence: Evidence) -> Cause:
    """Return what an observation speaks of."""
    if evidence.kind == "xid":
        code = int(evidence.name) if evidence.name.isdecimal() else -1
        return _OF_XID.get(code, GPU_UNAVAILABLE)
    name = evidence.name.lower().replace("-", "_")
    return next((cause for pattern, cause in _PATTERNS if pattern.search(name)), UNKNOWN)
