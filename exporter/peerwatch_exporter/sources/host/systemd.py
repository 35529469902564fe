"""Units of systemd: which have failed, and whether those that a GPU node needs run.

Read over the system bus, which every user may: neither /run/systemd nor the control groups say that
a unit has failed, and ``systemctl`` is a process of 10 ms each time and is in no container.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.errors import NoData, SourceMissing
from peerwatch_exporter.sources.host.dbus_call import DbusConnection, DbusError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
# name, description, load state, active state, sub state, followed, path, job, its kind and path
_UNIT_FIELDS = 10


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit and its states in systemd's words: ``loaded``, ``active``, ``failed``, ..."""

    name: str
    load_state: str
    active_state: str


@dataclass(frozen=True, slots=True)
class Units:
    """The units that have failed, and those that were asked for by name and are installed."""

    failed: tuple[Unit, ...]
    named: tuple[Unit, ...]


def units(bus: Path, names: Sequence[str], timeout_seconds: float) -> Units:
    """Ask systemd for its units.

    Raises
    ------
    SourceMissing
        If there is no bus: no systemd, or a container that has not been given its socket.
    NoData
        If there is no systemd on it.
    OSError
        If the bus or systemd refuses, or does not answer in time.
    """
    try:
        with DbusConnection(bus, timeout_seconds) as connection:
            failed = _units(connection.call(*_MANAGER, "ListUnitsFiltered", ["failed"]))
            named = _units(connection.call(*_MANAGER, "ListUnitsByNames", names))
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise SourceMissing(f"Nobody listens on {str(bus)!r}: {error}.") from error
    except DbusError as error:
        # No such name, or the bus could not start one: systemd is never started by a bus.
        if any(word in str(error) for word in ("ServiceUnknown", "Error.Spawn")):
            raise NoData(f"There is no systemd on the bus: {error}") from error
        raise
    installed = (unit for unit in named if unit.load_state not in {"not-found", "masked"})
    return Units(failed, tuple(installed))


def _units(answer: list[object]) -> tuple[Unit, ...]:
    rows = answer[0] if answer else None
    if not isinstance(rows, list):
        raise DbusError("systemd answered with no list of units.")
    found = []
    for row in rows:
        if not isinstance(row, tuple) or len(row) != _UNIT_FIELDS:
            raise DbusError(f"systemd describes a unit as {str(row)[:80]!r}.")
        found.append(Unit(row[0], row[2], row[3]))
    return tuple(found)
