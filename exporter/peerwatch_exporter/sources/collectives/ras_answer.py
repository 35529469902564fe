"""What NCCL's RAS says of communicators: from its JSON, or from the text of older versions.

Text has counts only of communicators whose ranks differ, and names only the ranks in the minority,
which may be those ahead. Neither form is taken at its word: NCCL 2.27.3 printed ranks that do not
exist, 2.28.9 leaves a comma out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.volume import collective_name

if TYPE_CHECKING:
    from peerwatch_exporter.sources.collectives.ras_client import RasAnswer

# A double's range of exact integers; ten times the ranks of the largest jobs; HOST_NAME_MAX.
_LARGEST_COUNT = 2**53
_MOST_RANKS = 1_000_000
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class RasRank:
    """One rank of a communicator.

    Parameters
    ----------
    rank
        Its number in the communicator.
    host, pid
        Its process, as it sees itself.
    launched
        Collectives that it has launched, by kind; empty of a missing rank.
    is_missing
        Whether its process does not answer the others.
    is_partial
        Whether there may be kinds that are not listed, so that the sum is no sequence number.
    """

    rank: int
    host: str
    pid: int
    launched: Mapping[str, int] = field(default_factory=dict)
    is_missing: bool = False
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator: its hash, its number of ranks (None in text), and those that are known."""

    hash: str
    size: int | None
    ranks: tuple[RasRank, ...]


@dataclass(frozen=True, slots=True)
class RasStatus:
    """What RAS knows of a job.

    Parameters
    ----------
    communicators
        All of them; in text those whose ranks differ.
    garbled
        How many parts of the answer made no sense.
    missing
        Processes that do not answer, as host and pid, where they are not listed by communicator.
    """

    communicators: tuple[Communicator, ...]
    garbled: int = 0
    missing: tuple[tuple[str, int], ...] = ()


def parse_ras(answer: RasAnswer) -> RasStatus:
    """Return what an answer says.

    Raises
    ------
    CollectiveSourceError
        If it is no status at all.
    """
    text = answer.body.decode(errors="replace")
    return _parse_json(text) if answer.is_json else _parse_text(text)


def _parse_json(text: str) -> RasStatus:
    try:
        document = _load(text)
    except (ValueError, RecursionError) as error:
        raise _garbled(f"is no JSON: {str(error)[:80]}") from error
    communicators = document.get("communicators") if isinstance(document, dict) else None
    if not isinstance(communicators, list):
        raise _garbled("has no list of communicators")
    found, garbled = [], 0
    for raw in communicators:
        name = raw.get("hash") if isinstance(raw, dict) else None
        size = _whole(raw.get("size"), 1, _MOST_RANKS) if isinstance(raw, dict) else None
        if not isinstance(name, str) or not name or size is None:
            garbled += 1
            continue
        listed = [(each, False) for each in _list(raw.get("ranks"))]
        listed += [(each, True) for each in _list(raw.get("missing_ranks"))]
        ranks = {}
        for each, is_missing in listed:
            rank = _rank(each, size, is_missing=is_missing)
            if rank is None or rank.rank in ranks:
                garbled += 1
            else:
                ranks[rank.rank] = rank
        found.append(Communicator(name[:_LONGEST_NAME], size, tuple(ranks.values())))
    return RasStatus(tuple(found), garbled)


# The end of a value, a line's end, and the beginning of the next key or object, with no comma.
_NO_COMMA = re.compile(r"(true|false|null|[\d\"\]}])(\s*\n\s*)(?=[{\"])|(})(\s*)(?={)")


def _load(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_NO_COMMA.sub(r"\1\3,\2\4", text))


def _rank(raw: object, size: int, *, is_missing: bool) -> RasRank | None:
    if not isinstance(raw, dict):
        return None
    rank, pid, host = _whole(raw.get("rank"), 0, size), _pid(raw.get("pid")), raw.get("host")
    counts = {} if is_missing else raw.get("collective_counts")
    if rank is None or pid is None or not isinstance(host, str) or not isinstance(counts, dict):
        return None
    launched: dict[str, int] = {}
    for name, value in counts.items():
        count = _whole(value, 0, _LARGEST_COUNT)
        if count is None:
            return None
        kind = collective_name(name)
        launched[kind] = launched.get(kind, 0) + count
    return RasRank(rank, host[:_LONGEST_NAME], pid, launched, is_missing)


_HEADING = re.compile(r"#\d+-\d+ \(([0-9a-fA-Fx]{1,40})\) (\w+)")
_KIND = re.compile(r"\s*Communicator ranks have different (\w+) operation counts")
_COUNT = re.compile(r"\s*\d+ ranks have (?:launched up to operation (\d+)|not launched any)")
_OUTLIER = re.compile(r"\s*Rank (\d+) -- GPU .* managed by process (\d+) on node (\S+)")
_PROCESS = re.compile(r"\s*Process (\d+) on node (\S+) managing GPU")
_SINGLE = re.compile(
    r"\s*Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations)"
    r" -- GPU .* managed by process (\d+) on node (\S+)"
)


def _parse_text(text: str) -> RasStatus:
    if not text.startswith("NCCL version") and "Job summary" not in text:
        raise _garbled(f"begins with {text[:40]!r}")
    found: dict[str, dict[int, RasRank]] = {}
    ranks: dict[int, RasRank] | None = None
    kind, count = "other", 0
    missing: dict[tuple[str, int], None] = {}
    for line in text.splitlines():
        if process := _PROCESS.match(line):
            missing[process[2], int(process[1])] = None
        elif heading := _HEADING.match(line):
            ranks = found.setdefault(heading[1], {}) if heading[2] == "MISMATCH" else None
            kind = "other"
        elif ranks is None:
            continue
        elif named := _KIND.match(line):
            # Before 2.27 it says "collective", of all kinds together.
            kind = collective_name(named[1])
        elif counted := _COUNT.match(line):
            count = int(counted[1] or 0)
        elif single := _SINGLE.match(line):
            _note(ranks, int(single[1]), single[4], int(single[3]), kind, int(single[2] or 0))
        elif outlier := _OUTLIER.match(line):
            _note(ranks, int(outlier[1]), outlier[3], int(outlier[2]), kind, count)
    communicators = (
        Communicator(name, None, tuple(ranks.values())) for name, ranks in found.items()
    )
    return RasStatus(tuple(communicators), missing=tuple(missing))


def _note(ranks: dict[int, RasRank], rank: int, host: str, pid: int, kind: str, count: int) -> None:
    known = ranks.get(rank)
    launched = {**(known.launched if known is not None else {}), kind: count}
    # Only the first versions count all kinds together.
    is_partial = set(launched) != {"other"}
    ranks[rank] = RasRank(rank, host[:_LONGEST_NAME], pid, launched, is_partial=is_partial)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _whole(value: object, least: int, limit: int) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and least <= value < limit else None  # type: ignore[operator,return-value]


def _pid(value: object) -> int | None:
    return _whole(value, 1, 2**31)


def _garbled(what: str) -> CollectiveSourceError:
    return CollectiveSourceError("ras_garbled", f"the answer of RAS {what}")
