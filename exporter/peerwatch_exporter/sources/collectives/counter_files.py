"""Counters that a communication library writes itself: ``rank-<rank>.counters.json``.

The format is documented in docs/collectives.md. The file lies in the directory of the heartbeats
and is replaced as a whole, so that a reader never sees half of it.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.members import parse_members
from peerwatch_exporter.sources.collectives.telemetry import (
    GroupInfo,
    GroupTelemetry,
    InFlight,
    Totals,
)
from peerwatch_exporter.sources.collectives.volume import bus_factor, collective_name
from peerwatch_exporter.sources.files.fingerprints import file_fingerprints
from peerwatch_exporter.sources.files.regular_file import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from peerwatch_exporter.sources.files.fingerprints import Fingerprint

SOURCE = "counters"
# A library writes once a second or so; a file that is older than a usual scrape interval was left
# by a rank that stands still.
FRESH_SECONDS = 15.0
_NAME = re.compile(r"rank-(0|[1-9]\d{0,6})\.counters\.json")
# Some hundred bytes per group: thousands of groups. Texts are cut where they would be no label.
_LARGEST_FILE_BYTES = 1 << 20
_LARGEST = float(2**63)
_LONGEST_TEXT = 200


class RankCounters(NamedTuple):
    """What one file says: the rank, when it was written (Unix time), its groups, what they are."""

    rank: int
    time: float
    groups: tuple[GroupTelemetry, ...]
    infos: tuple[GroupInfo, ...]


class CounterFiles:
    """Reads the files of a directory, each again only when it has changed.

    Parameters
    ----------
    directory
        That of the heartbeats.
    most_groups
        How many groups of a rank are taken.
    clock
        Unix time by the clock that the files' times come from.
    """

    def __init__(
        self, directory: Path, most_groups: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._most_groups = most_groups
        self._clock = clock
        self._known: dict[str, tuple[Fingerprint | None, RankCounters]] = {}

    def read(self) -> tuple[list[RankCounters], list[Exception]]:
        """Return what the files say, and what is wrong with those that cannot be used."""
        try:
            fingerprints = file_fingerprints(self._directory)
        except OSError:  # the collector of the ranks reports it
            return [], []
        known: dict[str, tuple[Fingerprint | None, RankCounters]] = {}
        problems: list[Exception] = []
        now = self._clock()
        for name, fingerprint in sorted(fingerprints.items()):
            match = _NAME.fullmatch(name)
            before = self._known.get(name)
            if match is None:
                continue
            if before is not None and before[0] == fingerprint is not None:
                known[name] = before
                continue
            path = self._directory / name
            try:
                counters = parse_counters(path, int(match[1]), self._most_groups)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError) as error:
                problems.append(CollectiveSourceError("garbled_counters", f"{path}: {error}"))
                continue
            is_stable = fingerprint is not None and fingerprint.is_stable(now)
            known[name] = (fingerprint if is_stable else None), counters
        self._known = known
        return [counters for _, counters in known.values()], problems


def parse_counters(path: Path, rank: int, most_groups: int) -> RankCounters:
    """Return what one file says.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is not what the format says; the text names the field.
    """
    file = read_regular(str(path), _LARGEST_FILE_BYTES)
    document = _object(json.loads(file.content), "the file")
    own = _number(document, "rank", whole=True)
    if own != rank:
        raise ValueError(f"says it is rank {document.get('rank')!r:.20}")
    written = _number(document, "time")
    groups = document.get("groups")
    if not isinstance(groups, list) or len(groups) > most_groups:
        raise ValueError(f"groups is no list of at most {most_groups} groups")
    parsed = [_group(_object(group, "a group")) for group in groups]
    return RankCounters(
        rank,
        file.written if written is None else written,
        tuple(telemetry for telemetry, _ in parsed),
        tuple(info for _, info in parsed),
    )


def _group(group: Mapping[str, object]) -> tuple[GroupTelemetry, GroupInfo]:
    name = _text(group, "name")
    if not name:
        raise ValueError("a group has no name")
    members = _text(group, "members")
    size = sum(map(len, parse_members(members)))
    kinds = _object(group.get("collectives", {}), "collectives")
    totals: dict[str, Totals] = {}
    for kind, each in kinds.items():
        collective = collective_name(kind)
        if collective in totals:
            raise ValueError(f"collectives has {collective!r} twice, as {kind!r:.40}")
        totals[collective] = _totals(_object(each, kind), collective, size)
    requests = group.get("work_requests")
    telemetry = GroupTelemetry(
        name,
        _sequence(group, "launched"),
        _sequence(group, "started"),
        _sequence(group, "completed"),
        _in_flight(group),
        totals,
        work_requests=None if requests is None else _requests(_object(requests, "work_requests")),
    )
    return telemetry, GroupInfo(name, _text(group, "description"), members, size)


def _totals(each: Mapping[str, object], collective: str, size: int) -> Totals:
    launched = _number(each, "launched")
    moved = _number(each, "bytes")
    factor = bus_factor(collective, size) if size else None
    return Totals(
        launched=0 if launched is None else launched,
        completed=_number(each, "completed"),
        seconds=_number(each, "duration_seconds"),
        size=moved,
        bus=None if moved is None or factor is None else moved * factor,
    )


def _in_flight(group: Mapping[str, object]) -> InFlight | None:
    if group.get("in_flight") is None:
        return None
    flight = _object(group["in_flight"], "in_flight")
    since = _number(flight, "since")
    if since is None:
        raise ValueError("in_flight has no since")
    texts = [_text(flight, key) for key in ("input", "output", "dtype")]
    completed = _sequence(group, "completed")
    sequence = _sequence(flight, "sequence")
    if sequence is None and completed is not None:
        sequence = completed + 1
    return InFlight(since, sequence, collective_name(_text(flight, "collective")), *texts)


def _requests(requests: Mapping[str, object]) -> tuple[float, float]:
    posted, completed = _number(requests, "posted"), _number(requests, "completed")
    if posted is None or completed is None:
        raise ValueError("work_requests needs posted and completed")
    return posted, completed


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what:.40} is {type(value).__name__}, not an object")
    return value


def _sequence(values: Mapping[str, object], name: str) -> int | None:
    number = _number(values, name, whole=True)
    return None if number is None else int(number)


def _number(values: Mapping[str, object], name: str, *, whole: bool = False) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value < _LARGEST:  # type: ignore[arg-type,operator]
        raise ValueError(f"{name} {value!r:.40} is no number of at least 0")
    if whole and value != int(value):  # type: ignore[call-overload]
        raise ValueError(f"{name} {value!r:.40} is no whole number")
    return value  # type: ignore[return-value]


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError(f"{name} {value!r:.40} is no text of at most {_LONGEST_TEXT} characters")
    return value
