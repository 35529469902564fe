"""What rounds of pairs say of this node, and on the first node of links and of who did not come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_checks.check import Outcome
from peerwatch_checks.multihost.member import came_too_late

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_checks.multihost.member import Member
    from peerwatch_checks.multihost.rounds import Result
    from peerwatch_checks.pairs.naming import Suspect

# Names in a sentence: chosen, more than are ever to be looked at one by one.
_LISTED = 8


@dataclass(frozen=True, slots=True)
class Words:
    """How a value reads.

    Parameters
    ----------
    unit
        Of the value.
    reached
        A format for ``value`` and ``level``, to follow "does".
    advice
        What to look at besides; a sentence with a space before it.
    """

    unit: str
    reached: str
    advice: str = ""


def outcomes(result: Result, member: Member, words: Words) -> Iterator[Outcome]:
    """Yield what is known of this node, and on the first one of everything else.

    What is about this node has no device, whatever is about others has theirs: the first node is
    not to be taken out for what it says of them.

    Parameters
    ----------
    result
        Of all rounds.
    member
        Which node this is.
    words
        How a value reads.
    """
    if member.index not in result.names:
        yield came_too_late(member)
        return
    own = result.names[member.index]
    found = [each for each in result.named.suspects if each.names == (own,)]
    if found:
        yield replace(_outcome(found[0], result, words), device="")
    else:
        yield _well(own, result, words)
    if member.index:
        return
    for index in result.missing:
        text = f"Node {index} of the job did not come. Look whether it is up and was started."
        yield Outcome("fail", text, f"node {index}")
    for suspect in result.named.suspects:
        if suspect.names != (own,):
            yield _outcome(suspect, result, words)


def _well(own: str, result: Result, words: Words) -> Outcome:
    mine = {pair: value for pair, value in result.bandwidth.items() if own in pair}
    level = result.named.level
    if not mine:
        return Outcome("skipped", "No other node came to be paired with.")
    best = max(mine.values())
    if best <= 0:
        text = f"Nothing came through between {own} and any of {len(mine)} others; see the others."
        return Outcome("error", text, "", best, words.unit)
    if not result.named.enough and result.named.suspects == ():
        text = (
            f"{best:.4g} {words.unit} between two nodes; without a third or a floor that says "
            "nothing."
        )
        return Outcome("skipped", text, "", best, words.unit)
    if any(own in each.names and each.kind == "undecided" for each in result.named.suspects):
        reached = words.reached.format(value=best, level=level)
        text = f"{reached}; whether it is this node or its partner is open."
        return Outcome("error", text, "", best, words.unit, level)
    text = (
        f"{best:.4g} {words.unit} at best with {len(mine)} others; the healthy level is "
        f"{level:.4g}."
    )
    return Outcome("pass", text, "", best, words.unit, level)


def _outcome(suspect: Suspect, result: Result, words: Words) -> Outcome:
    level = result.named.level
    value = suspect.ratio * level
    names = " - ".join(suspect.names[:_LISTED])
    reached = words.reached.format(value=value, level=level)
    why = _why(suspect, result)
    if suspect.kind == "node":
        when = f" when {suspect.direction}" if suspect.direction else ""
        text = f"{names} does {reached} at best with any other node{when}{why}. Take it out."
    elif suspect.kind == "link":
        text = f"{names} do {reached}, with others more{why}. Look at the path between them."
    elif suspect.kind == "uplink":
        text = f"What crosses {names} does {reached} at best. Look at its uplinks; no node is bad."
    elif suspect.kind == "fabric":
        share = f"{suspect.ratio:.0%} of the floor at best"
        text = f"All pairs are low ({share}): it is the fabric or a setting, not a node."
    else:
        text = f"{names} do {reached}{why}; which of them it is, a third node would show."
        return Outcome("error", text, names, value, words.unit, level)
    device = "fabric" if suspect.kind == "fabric" else names
    return Outcome("fail", f"{text}{words.advice}", device, value, words.unit, level)


def _why(suspect: Suspect, result: Result) -> str:
    """Return why a pair of the suspect's has no bandwidth, if one has none."""
    failures = [text for pair, text in result.failures.items() if set(suspect.names) & set(pair)]
    return f" ({failures[0]})" if failures else ""
