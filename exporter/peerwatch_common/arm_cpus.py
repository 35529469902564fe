"""The models of Arm CPUs, of which the kernel prints no name."""

from __future__ import annotations

import re

_CORE = re.compile(
    r"^CPU implementer[ \t]*: *(0x[0-9a-f]{1,4})$.*?^CPU part[ \t]*: *(0x[0-9a-f]{1,4})$",
    re.MULTILINE | re.DOTALL,
)


def arm_cpus(cpuinfo: str) -> tuple[str, ...]:
    """Return the models in a ``/proc/cpuinfo``, each once: who made the design, and its number.

    A Grace is ``Arm 0x41 0xd4f``: Arm's own Neoverse V2.
    """
    return tuple(sorted({f"Arm {maker} {part}" for maker, part in _CORE.findall(cpuinfo)}))
