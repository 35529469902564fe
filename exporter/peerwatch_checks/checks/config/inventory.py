"""Whether the node has what others of its kind have: GPUs, NVLinks, NICs, memory, disks, image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.facts.expectation import (
    Difference,
    differences,
    other_kind,
    read_expectation,
)
from peerwatch_checks.facts.inventory import Roots
from peerwatch_checks.facts.inventory import inventory as facts_of
from peerwatch_common.errors import ConfigError
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context

# Hardware that is missing ends jobs; a version that differs may slow them, or not.
_HARDWARE = ("gpu.count", "gpu.model", "gpu.memory", "gpu.nvlinks", "gpu.pcie", "rdma.ports",
             "net.interfaces", "memory.total", "mount.shared")  # fmt: skip


class InventoryOptions(Options):
    """What the node must have."""

    expectation: Path | None = Field(
        default=None,
        description="A YAML file of keys and values, as peerwatch-check config "
        "--write-expectation writes it on a good node.",
    )


@register(
    "inventory",
    "config",
    "GPUs, NVLinks, NICs, memory, disks, mounts and versions against an expectation file",
    failure="hardware is missing or another one, or the node has another image",
    condition="hardware_differs",
    seconds=2.0,
    suites=("config", "light", "full"),
    active=False,
    options=InventoryOptions,
)
def inventory(
    context: Context, *, nvml: Callable[[], dict[str, str]] | None = None
) -> Iterator[Outcome]:
    """Yield an outcome for each key that differs, or one for all.

    Parameters
    ----------
    context
        Settings, where /proc and /sys are.
    nvml
        What the driver knows; None: asked for.
    """
    options = context.options
    assert isinstance(options, InventoryOptions)
    facts = facts_of(Roots(context.procfs, context.sysfs, context.rootfs), nvml)
    if options.expectation is None:
        gpus = facts.get("gpu.model", "no GPU")
        ports = facts.get("rdma.ports", "no RDMA port")
        text = f"{gpus}; {ports}; {facts.get('memory.total', '?')} of memory"
        yield Outcome(
            "skipped",
            f"{text}: compared with nothing. On a good node: peerwatch-check config "
            "--write-expectation FILE; then set checks.inventory.expectation.",
        )
        return
    try:
        expected = read_expectation(options.expectation)
    except ConfigError as error:
        yield Outcome("error", "; ".join(error.mistakes))
        return
    other = other_kind(expected, facts)
    if other is not None:
        yield Outcome(
            "error",
            f"{options.expectation} is of another kind of machine: its {other.key} is "
            f"{other.expected}, here it is {other.found or 'not known'}.",
        )
        return
    found = differences(expected, facts)
    yield from map(_outcome, found)
    if not found:
        yield Outcome("pass", f"All {len(expected)} keys of {options.expectation} are as expected.")


def _outcome(difference: Difference) -> Outcome:
    is_hardware = difference.key in _HARDWARE
    severity = severity_of("hardware_differs" if is_hardware else "settings_differ")
    text = (
        f"{difference.key} is {difference.found}, expected is {difference.expected}."
        if difference.found
        else f"{difference.key} is missing, expected is {difference.expected}."
    )
    return Outcome("fail", text, difference.key, severity=severity)
