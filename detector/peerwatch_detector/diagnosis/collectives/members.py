"""Which ranks belong to a process group, from what several nodes say of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from peerwatch_detector.diagnosis.collectives.snapshot import Group

# No job has more ranks: ten times the 100,000 GPUs of docs/scaling.md. What claims more is no list
# of ranks.
_MOST_RANKS = 1_000_000
# Members and description of a group, and how many nodes claim them.
Claims = Counter[tuple[frozenset[int], str]]

_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")


def parse_ranks(text: str) -> frozenset[int]:
    """Return the ranks of ranges such as ``0-3,8`` or ``0-28:4`` (every fourth).

    Raises
    ------
    ValueError
        If it is something else.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{text!r} is no list of ranks: expected ranges such as 0-3,8")
        first, last, step = found.group(1), found.group(2), found.group(3)
        listed = range(int(first), int(last or first) + 1, max(1, int(step or 1)))
        # Before they are made: a label of ten characters must not cost a gigabyte.
        if len(ranks) + len(listed) > _MOST_RANKS:
            raise ValueError(f"{text[:40]!r}... lists more than {_MOST_RANKS} ranks")
        ranks.update(listed)
    return frozenset(ranks)


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as ranges.

    >>> format_ranks([0, 1, 2, 3, 8])
    '0-3,8'
    """
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def resolve(name: str, claims: Claims, reporters: Iterable[int]) -> list[Group]:
    """Return the groups that go by one name.

    Parameters
    ----------
    name
        Of the group.
    claims
        How many nodes say that these ranks are its members, with this description.
    reporters
        The ranks that report collectives in it.

    Returns
    -------
    list
        Sets of members that share no rank are groups of their own. Of sets that do, the one that
        most nodes claim stands. Without any claim, whoever reports a group is a member.
    """
    kept: list[tuple[frozenset[int], str]] = []
    taken: set[int] = set()
    ordered = sorted(
        ((-count, -len(ranks), text, sorted(ranks)), ranks)
        for (ranks, text), count in claims.items()
    )
    for (_, _, description, _), members in ordered:
        if members and taken.isdisjoint(members):
            kept.append((members, description))
            taken |= members
    if not kept:
        return [Group(name, frozenset(reporters))]
    if len(kept) == 1:
        return [Group(name, *kept[0])]
    return [Group(f"{name} ({format_ranks(m)})", m, d) for m, d in kept]


def count_claims(
    labels: Iterable[Mapping[str, str]],
) -> dict[str, Counter[tuple[frozenset[int], str]]]:
    """Return by group what nodes say of its members; what is no list of ranks is left out."""
    found: dict[str, Claims] = {}
    for label in labels:
        try:
            members = parse_ranks(label.get("members", ""))
        except ValueError:
            continue
        claims = found.setdefault(label.get("group", ""), Counter())
        claims[members, label.get("description", "")] += 1
    return found
