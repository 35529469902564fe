"""Keys of configuration: which aspect they are about, and of which device.

``gpu.vbios`` is what all GPUs of a node have in common, ``gpu.3.vbios`` what the third has where
they differ; ``rank.NCCL_DEBUG`` and ``rank.3.NCCL_DEBUG`` go by local rank.
"""

from __future__ import annotations

from dataclasses import dataclass

_OF_DEVICES = frozenset({"gpu", "nic", "rank"})
ENVIRONMENT = "rank.environment"
"""Its value says that the variables of a node's ranks could be read."""
UNSET = "(unset)"
"""Value of a variable that ranks of a node do not have."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """What a key is about; ``device`` is empty where all devices of a node agree."""

    name: str
    device: str = ""

    def of(self, device: str) -> str:
        """Return the key of one device, or of all if ``device`` is empty."""
        kind, _, aspect = self.name.partition(".")
        return f"{kind}.{device}.{aspect}" if device else self.name

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of ranks, which they may also not have."""
        return (
            self.name.startswith("rank.")
            and not self.name.startswith("rank.limit_")
            and self.name != ENVIRONMENT
        )


def aspect_of(key: str) -> Aspect:
    """Return what a key is about."""
    kind, _, rest = key.partition(".")
    device, dot, aspect = rest.rpartition(".")
    if kind not in _OF_DEVICES or not dot:
        return Aspect(key)
    return Aspect(f"{kind}.{aspect}", device)
