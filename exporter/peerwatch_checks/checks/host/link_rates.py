"""Whether PCIe links, RDMA ports and network interfaces have the width and rate they can have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from peerwatch_checks.check import Outcome, Skip, register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from peerwatch_checks.check import Context

# By class of PCI: what a training job moves data through.
_CLASSES = {"0x0302": "GPU", "0x0300": "GPU", "0x0207": "NIC", "0x0200": "NIC", "0x0108": "NVMe"}
# An idle GPU lowers its speed to save power, and raises it when it has work.
_SAVES_POWER = "GPU"
# The fewest of which most can be alike: of two that differ, nobody knows which is wrong.
_MAJORITY_OF = 3
_ETHERNET = "1"
# Of links of one kind, by name; None: it is down.
_Rates = dict[str, float | None]


@register(
    "link_rates",
    "host",
    "PCIe links of GPUs, NICs and NVMe: width and speed; RDMA ports and NICs: up, and their rates",
    failure="a link trained down or is down: a bad slot, riser, cable or transceiver",
    condition="network_link_errors",
    seconds=0.2,
    suites=("config", "light", "full"),
    active=False,
)
def link_rates(context: Context) -> Iterator[Outcome]:
    """Yield an outcome for each link that is below what it can be, and one for the others.

    Raises
    ------
    Skip
        If the node shows no such link.
    """
    ports = {**_ports(context.sysfs), **_interfaces(context.sysfs)}
    found = [*_pcie(context.sysfs), *(each for alike in ports.values() for each in _alike(alike))]
    if not found:
        raise Skip(
            "No PCIe link of a GPU, NIC or NVMe, no RDMA port and no network interface with a rate "
            f"below {context.sysfs}."
        )
    bad = [each for each in found if each.status != "pass"]
    yield from bad
    if not bad:
        yield Outcome("pass", f"{len(found)} links have the width and rate that they can have.")


def _pcie(sysfs: Path) -> Iterator[Outcome]:
    for device in sorted((sysfs / "bus" / "pci" / "devices").glob("*")):
        kind = _CLASSES.get(_text(device / "class")[:6], "")
        # The slot may have less than the device: that is how the node was built.
        upper = device.resolve().parent
        width = _least(device, upper, "max_link_width")
        now = _number(_text(device / "current_link_width"))
        if not kind or not width or not now:
            continue
        name = f"{kind} {device.name}"
        speed = _least(device, upper, "max_link_speed")
        speed_now = _number(_text(device / "current_link_speed"))
        if now < width:
            yield _bad(name, f"its PCIe link has {now:g} lanes of {width:g}")
        elif kind != _SAVES_POWER and 0 < speed_now < speed:
            yield _bad(name, f"its PCIe link has {speed_now:g} of {speed:g} GT/s")
        else:
            yield Outcome("pass", "", name)


def _ports(sysfs: Path) -> dict[tuple[str, ...], _Rates]:
    """Return the rates of RDMA ports in Gb/s, by kind."""
    found: dict[tuple[str, ...], _Rates] = {}
    for device in sorted((sysfs / "class" / "infiniband").glob("*")):
        for port in sorted((device / "ports").glob("*")):
            # Ports of one kind of board; a NIC for storage may be another.
            kind = ("rdma", _text(device / "board_id"), _text(port / "link_layer"))
            active = "ACTIVE" in _text(port / "state")
            rate = _number(_text(port / "rate")) if active else None
            found.setdefault(kind, {})[f"{device.name} port {port.name}"] = rate
    return found


def _interfaces(sysfs: Path) -> dict[tuple[str, ...], _Rates]:
    """Return the rates of physical Ethernet interfaces in Gb/s, by model."""
    found: dict[tuple[str, ...], _Rates] = {}
    for interface in sorted((sysfs / "class" / "net").glob("*")):
        device = interface / "device"
        if not device.exists() or _text(interface / "type") != _ETHERNET:
            continue
        up = _text(interface / "operstate") == "up"
        # In Mb/s; an interface that is down, or has no rate, says -1 or cannot be read.
        rate = _number(_text(interface / "speed")) / 1000
        if not up or rate > 0:
            kind = ("ethernet", _text(device / "vendor"), _text(device / "device"))
            found.setdefault(kind, {})[interface.name] = rate if up else None
    return found


def _alike(rates: Mapping[str, float | None]) -> Iterator[Outcome]:
    """Yield an outcome for each link of one kind: most of them say what is usual."""
    usual, count = Counter(rates.values()).most_common(1)[0]
    known = usual is not None and len(rates) >= _MAJORITY_OF and count * 2 > len(rates)
    for name, rate in rates.items():
        if known and rate is None:
            yield _bad(name, f"it is down, {count} like it are up with {usual:g} Gb/s")
        elif known and rate is not None and usual is not None and rate < usual:
            yield _bad(name, f"its rate is {rate:g} Gb/s, that of {count} like it {usual:g}")
        elif rate is not None:
            yield Outcome("pass", "", name)


def _bad(name: str, what: str) -> Outcome:
    return Outcome("fail", f"{name}: {what}. Look at its slot, cable and transceiver.", name)


def _least(device: Path, upper: Path, name: str) -> float:
    """Return the lower of what a device and the port above it can have; 0: not known."""
    known = [_number(_text(each / name)) for each in (device, upper)]
    return min((each for each in known if each), default=0.0)


def _number(text: str) -> float:
    """Return the number that a text begins with: ``32.0 GT/s PCIe``, ``16``; 0: none."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
