"""How often one GPU, one network port or one host fails: rates by what a cause speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.accounting.failure_rates import weekly_dispersion
from peerwatch_reliability.accounting.intervals import rate_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_reliability.accounting.failure_rates import Exposed
    from peerwatch_reliability.accounting.intervals import Rate
    from peerwatch_reliability.records import Window

# PCIe errors are mostly seen as a GPU that fell off its bus.
_CAUSES: dict[str, frozenset[str]] = {
    "gpu": frozenset({"gpu_unavailable", "gpu_memory", "gpu_driver", "nvlink", "pcie"}),
    "network_port": frozenset({"network_link"}),
    "host": frozenset(
        {"node_fail", "main_memory", "filesystem", "ethernet_link", "other_hardware",
         "system_service"}
    ),
}  # fmt: skip


class ComponentRate(NamedTuple):
    """How often components of a kind fail.

    Parameters
    ----------
    failures
        Attempts that one of them failed.
    per_node
        How many a node has; None: not known.
    rate
        Failures per component and day; None: not known.
    """

    failures: int
    per_node: float | None
    rate: Rate | None


def rates_by_component(
    attempts: Sequence[Exposed],
    window: Window,
    node_days: float,
    per_node: Mapping[str, float],
) -> dict[str, ComponentRate]:
    """Return the rates of a single component of each kind.

    Parameters
    ----------
    attempts, window
        Which failed, and when.
    node_days
        Of the whole fleet.
    per_node
        Mean number of each kind on a node; of hosts it is 1.
    """
    found = {}
    for name, causes in _CAUSES.items():
        ends = [each.end for each in attempts if each.failed and each.cause in causes]
        count = 1.0 if name == "host" else per_node.get(name)
        rate = None
        if count:
            rate = rate_of(len(ends), node_days * count, weekly_dispersion(ends, window))
        found[name] = ComponentRate(len(ends), count, rate)
    return found
