"""Whether a NIC's link loses packets or goes down while the check watches, or did all too often."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, Skip, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context

# Events per second that are still no fault (NVSentinel, docs/configuration/nic-health-monitor.md);
# 0: none is. By the names of RDMA ports' counters, then of network interfaces.
RDMA_LIMITS = {
    "link_downed": 0.0,
    "local_link_integrity_errors": 0.0,
    "excessive_buffer_overrun_errors": 0.0,
    "rnr_nak_retry_err": 0.0,
    "symbol_error": 10.0,
    "port_rcv_errors": 10.0,
    "port_xmit_discards": 100.0,
    "link_error_recovery": 5 / 60,
    "local_ack_timeout_err": 1.0,
    "roce_slow_restart": 10.0,
}
NET_LIMITS = {
    "rx_crc_errors": 10.0,
    "rx_frame_errors": 10.0,
    "rx_errors": 10.0,
    "tx_errors": 10.0,
    "tx_carrier_errors": 0.0,
    "carrier_down_count": 0.0,
}
_DOWN = ("link_downed", "carrier_down_count")
_DAY = 86_400.0


class LinkErrorsOptions(Options):
    """How long it watches, and how often a link may have gone down."""

    seconds: float = Field(
        default=3.0, gt=0, le=600, description="How long the counters are watched, in seconds."
    )
    downs_per_day: float = Field(
        default=5.0,
        gt=0,
        description="How often a link may have gone down per day since the node was started; "
        "more is a warning.",
    )


@dataclass(frozen=True, slots=True)
class Link:
    """A link and the files that count its errors.

    Parameters
    ----------
    name
        ``mlx5_0 port 1``, ``eth0``.
    folders
        Where its counters are.
    limits
        Events per second that are no fault, by name.
    """

    name: str
    folders: tuple[Path, ...]
    limits: dict[str, float]

    def counts(self) -> dict[str, int]:
        """Return its counters; those that cannot be read are not in it."""
        found: dict[str, int] = {}
        for name in self.limits:
            for folder in self.folders:
                try:
                    found[name] = int((folder / name).read_text())
                    break
                except (OSError, ValueError):
                    continue
        return found


@register(
    "link_errors",
    "host",
    "errors, discards and interruptions of the NICs' links while it watches their counters",
    failure="a cable, transceiver, port or NIC loses packets or interrupts the link",
    condition="network_link_errors",
    seconds=4.0,
    suites=("light", "full"),
    active=False,
    options=LinkErrorsOptions,
)
def link_errors(
    context: Context, *, wait: Callable[[float], None] = time.sleep
) -> Iterator[Outcome]:
    """Yield an outcome for each link.

    Parameters
    ----------
    context
        Settings, where /sys and /proc are.
    wait
        Waits for some seconds.

    Raises
    ------
    Skip
        If there is no link with counters.
    """
    options = context.options
    assert isinstance(options, LinkErrorsOptions)
    before = [(link, link.counts()) for link in links(context.sysfs)]
    before = [(link, counts) for link, counts in before if counts]
    if not before:
        raise Skip(f"No NIC below {context.sysfs} has counters.")
    seconds = min(options.seconds, context.seconds / 2)
    wait(seconds)
    days = _uptime(context.procfs) / _DAY
    for link, counts in before:
        yield _outcome(link, counts, link.counts(), seconds, days, options)


def links(sysfs: Path) -> list[Link]:
    """Return the RDMA ports and the physical network interfaces of a node."""
    found = [
        Link(
            f"{device.name} port {port.name}",
            (port / "counters", port / "hw_counters"),
            RDMA_LIMITS,
        )
        for device in sorted((sysfs / "class" / "infiniband").glob("*"))
        for port in sorted((device / "ports").glob("*"))
    ]
    found += [
        Link(interface.name, (interface / "statistics", interface), NET_LIMITS)
        for interface in sorted((sysfs / "class" / "net").glob("*"))
        # Bridges, bonds and containers' ends have no device of their own.
        if (interface / "device").exists()
    ]
    return found


def _outcome(
    link: Link,
    before: dict[str, int],
    after: dict[str, int],
    seconds: float,
    days: float,
    options: LinkErrorsOptions,
) -> Outcome:
    gone = sorted(before.keys() - after.keys())
    if gone:
        text = f"{link.name}: the counter {gone[0]} is not there any more. Look for the NIC."
        return Outcome("fail", text, link.name)
    # A counter that is reset begins again: what it says since then is what is known.
    grown = {
        name: after[name] - count if after[name] >= count else after[name]
        for name, count in before.items()
    }
    rates = {name: count / seconds for name, count in grown.items() if count}
    worst = [name for name, rate in rates.items() if rate > link.limits[name]]
    worst_first = sorted(rates, key=lambda name: name not in worst)
    said = ", ".join(f"{name} {grown[name]}" for name in worst_first)
    if worst:
        text = f"{link.name} counted {said} in {seconds:g} s, at most {_most(link, worst[0])}."
        return Outcome("fail", f"{text} Replace its cable or transceiver.", link.name)
    downs = max((after[name] for name in _DOWN if name in after), default=0)
    # The first ones are those of its start.
    if downs > max(1.0, days) * options.downs_per_day:
        text = f"{link.name} went down {downs} times in {days:.1f} days, at most "
        text += f"{options.downs_per_day:g} a day (link_errors.downs_per_day). Look at its cable."
        return Outcome("warn", text, link.name)
    text = f"{link.name} counted {said or 'nothing'} in {seconds:g} s."
    return Outcome("pass", text, link.name)


def _most(link: Link, name: str) -> str:
    limit = link.limits[name]
    return f"{limit:.3g} {name} per second" if limit else f"no {name}"


def _uptime(procfs: Path) -> float:
    """Return for how many seconds the node has been running; 0: not known."""
    try:
        return float((procfs / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
