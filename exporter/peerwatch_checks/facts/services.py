"""What systemd says of services: which run, which are to run at the start, which have failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_checks.check import Skip
from peerwatch_checks.external.command import find_program, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# What training depends on, where it is installed. Of several time services one is enabled.
KNOWN = (
    "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex", "nvidia-dcgm", "openibd",
    "chronyd", "chrony", "ntpd", "systemd-timesyncd", "containerd", "crio", "docker", "kubelet",
    "munge", "slurmd",
)  # fmt: skip
_PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "Result")
# Chosen: systemd answers in milliseconds; who waits this long waits for one that hangs.
_SECONDS = 10.0
_ENABLED = frozenset({"enabled", "enabled-runtime", "linked", "alias"})


class ServicesError(Exception):
    """systemd is here and does not answer, with what it said instead."""


@dataclass(frozen=True, slots=True)
class Service:
    """One unit, by systemd's own words.

    Parameters
    ----------
    name
        Without ``.service``.
    load_state, active_state, sub_state, unit_file_state, result
        As ``systemctl show`` has them.
    """

    name: str
    load_state: str
    active_state: str
    sub_state: str
    unit_file_state: str
    result: str

    @property
    def installed(self) -> bool:
        """Whether the node has such a unit."""
        return self.load_state not in {"not-found", ""}

    @property
    def enabled(self) -> bool:
        """Whether it is to run from the start."""
        return self.unit_file_state in _ENABLED

    @property
    def runs(self) -> bool:
        """Whether it runs, or has done what it is for."""
        return self.active_state in {"active", "reloading"}

    @property
    def starts(self) -> bool:
        """Whether it is being started, and not because it crashed."""
        return self.active_state == "activating" and self.sub_state != "auto-restart"

    @property
    def state(self) -> str:
        """Return in words what it does."""
        if not self.installed:
            return "not installed"
        more = f", {self.result}" if self.result not in {"", "success"} else ""
        return f"{self.active_state} ({self.sub_state}{more})"


def states_of(names: Iterable[str], rootfs: Path) -> dict[str, Service]:
    """Return what systemd says of services, by their names as given.

    Parameters
    ----------
    names
        With or without ``.service``.
    rootfs
        The node's root; another than ``/`` is entered, which takes root.

    Raises
    ------
    Skip
        If this machine was not started by systemd.
    ServicesError
        If systemd does not answer.
    """
    wanted = tuple(dict.fromkeys(names))
    units = [name if "." in name else f"{name}.service" for name in wanted]
    text = _systemctl(rootfs, "show", f"--property={','.join(_PROPERTIES)}", "--", *units)
    found = list(_blocks(text))
    if len(found) != len(wanted):
        raise ServicesError(f"systemctl showed {len(found)} of {len(wanted)} units.")
    # In the order asked for: an alias answers with the name of another unit.
    return {
        name: Service(name, *(values.get(key, "") for key in _PROPERTIES[1:]))
        for name, values in zip(wanted, found, strict=True)
    }


def failed_units(rootfs: Path) -> tuple[str, ...]:
    """Return the names of all units in state failed.

    Raises
    ------
    Skip
        If this machine was not started by systemd.
    ServicesError
        If systemd does not answer.
    """
    text = _systemctl(
        rootfs, "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager", "--full"
    )
    return tuple(sorted(line.split()[0] for line in text.splitlines() if line.split()))


def service_facts(rootfs: Path) -> dict[str, str]:
    """Return the known services that run, as an expectation file has them; none without systemd."""
    try:
        found = states_of(KNOWN, rootfs)
    except (Skip, ServicesError):
        return {}
    return {f"service.{name}": "running" for name, each in found.items() if each.runs}


def _systemctl(rootfs: Path, *arguments: str) -> str:
    booted = rootfs / "run" / "systemd" / "system"
    if not booted.is_dir():
        raise Skip(f"This machine was not started by systemd: there is no {booted}.")
    enter = () if str(rootfs) == "/" else (find_program("chroot"), str(rootfs))
    program = "systemctl" if enter else find_program("systemctl")
    said = run([*enter, program, *arguments], _SECONDS)
    if said.status is None:
        raise ServicesError(f"systemctl did not answer within {_SECONDS:g} s.")
    if said.status != 0:
        raise ServicesError(f"systemctl ended with {said.status}: {said.last_line()}")
    return said.output


def _blocks(text: str) -> Iterator[dict[str, str]]:
    """Yield the properties of each unit; an empty line stands between two."""
    for block in text.strip().split("\n\n"):
        pairs = (line.partition("=") for line in block.splitlines())
        values = {key: value for key, mark, value in pairs if mark}
        if values:
            yield values
