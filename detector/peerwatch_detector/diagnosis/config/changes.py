"""What changed on a job's nodes while it ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peerwatch_detector.diagnosis.config.keys import aspect_of

# Of a roll-out over the whole job these are enough to see it: as many as nodes are named elsewhere.
MOST_CHANGES = 64


@dataclass(frozen=True, slots=True, order=True)
class Value:
    """A value of one node."""

    node: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A value that another one took the place of.

    Parameters
    ----------
    time
        Unix time of the first sample with the new value.
    node, key
        Where.
    before, after
        The two values.
    """

    time: float
    node: str
    key: str
    before: str
    after: str


def changes(
    appeared: Iterable[Value], vanished: Iterable[Value], time: float
) -> tuple[Change, ...]:
    """Pair values that came with those that went, by node and key.

    A value that came alone was not read before, and one that went alone may be read again: neither
    is a change. Devices that agreed and now do not, or the other way round, changed where their
    values did.

    Parameters
    ----------
    appeared, vanished
        What there is now and was not before, and what was there and is not.
    time
        Unix time at which this was seen.
    """
    before: dict[tuple[str, str], dict[str, str]] = {}
    for old in vanished:
        aspect = aspect_of(old.key)
        before.setdefault((old.node, aspect.name), {})[aspect.device] = old.value
    found = []
    for new in sorted(appeared):
        aspect = aspect_of(new.key)
        known = before.get((new.node, aspect.name), {})
        # Of devices that agree now, those that did not before.
        others = [known.get("", "")] if aspect.device else sorted(set(known.values()))
        was = known.get(aspect.device) or next((o for o in others if o and o != new.value), "")
        if was and was != new.value:
            found.append(Change(time, new.node, new.key, was, new.value))
    return tuple(found)


def newest(known: Iterable[Change], found: Iterable[Change]) -> tuple[Change, ...]:
    """Return the newest change of each key of a node, 64 at most; what is known keeps its time.

    Parameters
    ----------
    known
        Those of before.
    found
        Those just found, which may repeat them.
    """
    latest = {(change.node, change.key): change for change in sorted(known)}
    for change in found:
        pair = change.node, change.key
        if pair not in latest or latest[pair].after != change.after:
            latest[pair] = change
    return tuple(sorted(latest.values())[-MOST_CHANGES:])
