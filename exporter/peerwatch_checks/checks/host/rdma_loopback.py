"""RDMA writes of each device to itself and to the next one: NIC, its PCIe link, the rail."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_checks.external.command import find_program
from peerwatch_checks.external.perftest import Bandwidth, write_bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context

# Of the time until the deadline, that of all pairs; the rest is for starting and for the results.
_SHARE = 0.9
# Of the port's rate: loopback of a healthy NIC reaches 0.9 and more with large messages
# (ConnectX-6 180 of 200 Gb/s, ConnectX-7 380 of 400).
_RATE_SHARE = 0.85


class RdmaLoopbackOptions(Options):
    """How far below its peers a device may be."""

    tolerance: float = Field(
        default=0.05, gt=0, lt=1, description="Share below the median of peers that is no fault."
    )
    megabytes: int = Field(default=8, ge=1, description="Size of a message, in MiB.")


@register(
    "rdma_loopback",
    "host",
    "RDMA writes of each NIC to itself and to the next one (perftest): bandwidth",
    failure="the NIC, its PCIe link or its port is slow or broken",
    condition="network_link_errors",
    seconds=60.0,
    suites=("full",),
    needs=("rdma", "perftest"),
    timeout_seconds=180.0,
    options=RdmaLoopbackOptions,
)
def rdma_loopback(
    context: Context,
    *,
    find: Callable[[str], str] = find_program,
    measure: Callable[..., Bandwidth] = write_bandwidth,
) -> Iterator[Outcome]:
    """Yield an outcome for each device, and for each two neighbours.

    Parameters
    ----------
    context
        Settings, time, where /sys is.
    find
        Returns the path of a program.
    measure
        As ``write_bandwidth``.
    """
    options = context.options
    assert isinstance(options, RdmaLoopbackOptions)
    devices = active_devices(context.sysfs)
    if not devices:
        raise Skip("No RDMA device has an active port.")
    program = find("ib_write_bw")
    names = list(devices)
    pairs = [(name, name) for name in names]
    if len(names) > 1:
        pairs += [(a, names[(place + 1) % len(names)]) for place, a in enumerate(names)]
    each = _SHARE * context.seconds / len(pairs)
    found = {
        pair: measure(program, *pair, port=_free_port(), seconds=each, megabytes=options.megabytes)
        for pair in pairs
    }
    for (a, b), bandwidth in found.items():
        name = a if a == b else f"{a} to {b}"
        if bandwidth.gigabits is None:
            # Another device that works shows that it is not the program.
            works = any(other.gigabits is not None for other in found.values())
            text = f"RDMA writes, {name}: {bandwidth.failure}."
            yield Outcome("fail" if works else "error", text, name)
            continue
        others = [
            other.gigabits
            for pair, other in found.items()
            if pair != (a, b)
            and (pair[0] == pair[1]) == (a == b)
            and devices[pair[0]] == devices[a]
            and other.gigabits is not None
        ]
        rate = min(devices[a], devices[b])
        against = reference_for(
            context,
            name,
            "Gb/s",
            options.tolerance,
            others=others,
            floor=_RATE_SHARE * rate if rate else None,
        )
        yield evaluate(
            bandwidth.gigabits,
            "Gb/s",
            against,
            what=f"RDMA writes, {name}",
            advice="Look at the width and speed of its PCIe link, its port and cable.",
            device=name,
        )


def active_devices(sysfs: Path) -> dict[str, float]:
    """Return the RDMA devices with an active port and its rate in Gb/s (0: not known), by name."""
    found: dict[str, float] = {}
    for device in sorted((sysfs / "class" / "infiniband").glob("*")):
        for port in sorted((device / "ports").glob("*")):
            # "4: ACTIVE", "400 Gb/sec (4X NDR)"
            if "ACTIVE" in _text(port / "state"):
                rate = _text(port / "rate").partition(" ")[0]
                known = float(rate) if rate.replace(".", "", 1).isdigit() else 0.0
                found[device.name] = max(found.get(device.name, 0.0), known)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
