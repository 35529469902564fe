"""One answer of torch's Flight Recorder: the ring of collectives, and how far each group is.

Torch writes the same document for its back ends, with differences that the reader must bear:
over gloo the state stays ``scheduled``, times of start and end are 0 and ``pg_config`` is empty,
while ``pg_status`` and ``retired`` tell what has completed; older versions have no ``pg_status``.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.volume import collective_name, tensor_bytes

# Numbers in a double's range of exact integers; more is no sequence number. Names and sizes become
# labels: chosen, longer ones tell no more.
_LARGEST = 2**53
_LONGEST_NAME = 128
_LONGEST_SIZES = 200
_TENSORS = ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
# A model's layers have some hundred different ones.
_MOST_KINDS = 4096
# Longer texts of sizes are not kept: 8 MiB for all kinds.
_LONGEST_USUAL = 2048
_UNNAMED = "undefined"
# The back end whose operations of two ranks, and all of whose states, say nothing.
_SILENT_BACKEND = "gloo"


class Progress(NamedTuple):
    """Sequence numbers of one group as its back end keeps them; None if it does not."""

    launched: int | None
    started: int | None
    completed: int | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the ring. Times are Unix times; what is not known is None.

    Parameters
    ----------
    record
        Number in the ring, rising by 1 with each entry of the process.
    group_id, group, description
        The process group: its number in this process, its name on all ranks, its description.
    sequence
        Number among the group's collectives; of little use if ``is_p2p``.
    collective
        Its kind, as in series.
    completed
        Whether it has; None if the back end does not say, see ``Progress``.
    seconds
        How long it took.
    size
        Bytes, see ``volume``.
    input, output, dtype
        Sizes and type of the tensors, as text.
    """

    record: int
    group_id: int
    group: str
    description: str
    sequence: int
    is_p2p: bool
    collective: str
    launched: float
    completed: bool | None
    seconds: float | None
    size: int | None
    input: str
    output: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Dump:
    """What one answer holds: raw entries, progress by group number, members by group name."""

    entries: Sequence[Mapping[str, Any]]
    progress: Mapping[int, Progress]
    members: Mapping[str, tuple[str, int]]


def parse_dump(body: bytes | bytearray) -> Dump:
    """Return an answer's content; entries are checked when they are made operations.

    Raises
    ------
    CollectiveSourceError
        If it is no document of the Flight Recorder.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _garbled(f"is no JSON: {str(error)[:100]}") from error
    if not isinstance(document, dict):
        raise _garbled(f"is {type(document).__name__}, not an object")
    # A recorder without entries, as it is where the ring is switched off, leaves them out.
    entries = document.get("entries") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _garbled("has 'entries' that are no list of objects")
    status = document.get("pg_status") or {}
    config = document.get("pg_config") or {}
    if not isinstance(status, dict) or not isinstance(config, dict):
        raise _garbled("has 'pg_status' or 'pg_config' that is no object")
    progress = {
        int(key): _progress(value)
        for key, value in status.items()
        if _is_digits(key) and isinstance(value, dict)
    }
    return Dump(entries, _caught_up(progress, entries), dict(_members(config)))


def ring_seconds(dump: Dump) -> float:
    """Return the seconds in which a ring was filled; 0 of one that has not gone round yet."""
    if len(dump.entries) < 2 or not record_of(dump.entries[0]):
        return 0.0
    first, last = (_whole(dump.entries[at].get("time_created_ns"), 2**63) for at in (0, -1))
    return max(0.0, (last - first) * 1e-9) if first and last else 0.0


def record_of(entry: Mapping[str, Any]) -> int | None:
    """Return an entry's number in the ring; None if it has none."""
    return _whole(entry.get("record_id"))


def parse_operation(entry: Mapping[str, Any]) -> Operation | None:
    """Return what an entry says; None if a part that is needed is missing or nonsense."""
    record, group_id = record_of(entry), _whole(entry.get("pg_id"))
    is_p2p = entry.get("is_p2p") is True
    sequence = _whole(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id"))
    group = entry.get("process_group")
    created = _whole(entry.get("time_created_ns"), 2**63)
    if record is None or group_id is None or sequence is None or not created:
        return None
    if not isinstance(group, list | tuple) or not group or not all(map(_is_name, group)):
        return None
    name = str(entry.get("profiling_name", ""))[:_LONGEST_NAME]
    tensors = [repr(entry.get(key)) for key in _TENSORS]
    is_usual = sum(map(len, tensors)) < _LONGEST_USUAL
    kind = (_kind if is_usual else _kind.__wrapped__)(name, *tensors)
    description = group[1] if len(group) > 1 else ""
    return Operation(
        record=record,
        group_id=group_id,
        group=group[0],
        description="" if description == _UNNAMED else description,
        sequence=sequence,
        is_p2p=is_p2p,
        collective=kind.collective,
        launched=created / 1e9,
        completed=_is_completed(entry, name),
        seconds=_seconds(entry),
        size=kind.size,
        input=kind.input,
        output=kind.output,
        dtype=kind.dtype,
    )


class _Kind(NamedTuple):
    """What the successive collectives of a training loop have in common, step by step."""

    collective: str
    size: int | None
    input: str
    output: str
    dtype: str


@lru_cache(maxsize=_MOST_KINDS)
def _kind(name: str, *tensors: str) -> _Kind:
    """Return what a name and the texts of its tensors' sizes and types mean."""
    input_sizes, output_sizes, input_types, output_types = map(_literal, tensors)
    sizes = _sizes(input_sizes), _sizes(output_sizes)
    dtypes = _names(input_types), _names(output_types)
    return _Kind(
        collective_name(name),
        _size(sizes, dtypes),
        _text(sizes[0]),
        _text(sizes[1]),
        ",".join(dict.fromkeys((*dtypes[0], *dtypes[1])))[:_LONGEST_NAME],
    )


def _literal(text: str) -> object:
    # It comes from JSON, so what Python writes of it is a literal, but for NaN and infinity.
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _is_completed(entry: Mapping[str, Any], name: str) -> bool | None:
    if entry.get("state") == "completed" or _whole(entry.get("time_discovered_completed_ns")):
        return True
    return None if name.startswith(_SILENT_BACKEND) else False


def _seconds(entry: Mapping[str, Any]) -> float | None:
    """Return the duration by the GPU's timing, else by when the watchdog saw start and end."""
    duration = entry.get("duration_ms")
    if isinstance(duration, int | float) and 0 < duration < 1e9:
        return duration / 1e3
    started = _whole(entry.get("time_discovered_started_ns"), 2**63)
    completed = _whole(entry.get("time_discovered_completed_ns"), 2**63)
    if not started or not completed or completed < started:
        return None
    return (completed - started) / 1e9


def _size(
    sizes: tuple[list[list[int]], list[list[int]]], dtypes: tuple[list[str], list[str]]
) -> int | None:
    moved = [tensor_bytes(*side) for side in zip(sizes, dtypes, strict=True)]
    return None if None in moved else max(part for part in moved if part is not None)


def _sizes(value: object) -> list[list[int]]:
    if not isinstance(value, list):
        return []
    return [
        [length for length in size if isinstance(length, int) and 0 <= length < _LARGEST]
        for size in value
        if isinstance(size, list)
    ]


def _names(value: object) -> list[str]:
    return [name for name in value if _is_name(name)] if isinstance(value, list) else []


def _text(sizes: list[list[int]]) -> str:
    text = ";".join(f"[{','.join(map(str, size))}]" for size in sizes)
    return text if len(text) <= _LONGEST_SIZES else text[: _LONGEST_SIZES - 3] + "..."


def _progress(status: Mapping[str, Any]) -> Progress:
    parts = ("enqueued", "started", "completed")
    return Progress(*(_number(status.get(f"last_{part}_collective")) for part in parts))


def _caught_up(
    progress: dict[int, Progress], entries: Sequence[Mapping[str, Any]]
) -> dict[int, Progress]:
    """Return progress without the numbers that a back end has set back.

    Two threads of gloo complete a group's collectives, and each writes its own number: one that is
    interrupted just before leaves a number of before the newest, until the next collective. In a
    long pause the rank would seem to hang. What the entries call retired has completed.
    """
    behind = {
        group_id: status.completed
        for group_id, status in progress.items()
        if status.completed is not None and status.completed < (status.launched or 0)
    }
    later: dict[int, list[tuple[int, bool]]] = {}
    for entry in entries if behind else ():
        # Asked first: of NCCL something is always in flight, and none of its entries counts here.
        if not str(entry.get("profiling_name")).startswith(_SILENT_BACKEND):
            continue
        group_id, sequence = _whole(entry.get("pg_id")), _whole(entry.get("collective_seq_id"))
        if group_id in behind and sequence is not None and sequence > behind[group_id]:
            later.setdefault(group_id, []).append((sequence, entry.get("retired") is True))
    for group_id, known in later.items():
        retired = takewhile(lambda each: each[1], sorted(known))
        newest = max((sequence for sequence, _ in retired), default=behind[group_id])
        progress[group_id] = progress[group_id]._replace(completed=newest)
    return progress


def _members(config: Mapping[str, Any]) -> list[tuple[str, tuple[str, int]]]:
    found = []
    for name, group in config.items():
        text = group.get("ranks") if isinstance(group, dict) else None
        ranks = text.strip("[]").replace(" ", "").split(",") if isinstance(text, str) else []
        # Over gloo one nameless group without ranks stands here.
        if _is_name(name) and name and ranks and all(map(_is_digits, ranks)):
            found.append((name, (str(group.get("desc", ""))[:_LONGEST_NAME], len(ranks))))
    return found


def _number(value: object) -> int | None:
    """Return a sequence number, which stands there as text; -1 stands for none."""
    return _whole(int(value) if isinstance(value, str) and _is_digits(value) else value)


def _whole(value: object, limit: int = _LARGEST) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value < limit else None  # type: ignore[operator,return-value]


def _is_digits(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 17


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME


def _garbled(what: str) -> CollectiveSourceError:
    return CollectiveSourceError("recorder_garbled", f"the Flight Recorder's answer {what}")
