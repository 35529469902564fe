"""The search for the part of a job that reproduces a fault: cut, train, compare, cut what is low.

It says which segments train next and is told what came of them, so that it needs no network. All
nodes train first, then their parts, then the parts of those that are low; healthy ones are handed
back at once, but for two partners of each suspicious part. A node is named when it is low with two
distinct partners, or slower than its peers or silent in two runs; two nodes that do well with
others are a link. What is low as a whole, again when repeated, and in none of its parts, is the
fabric above the parts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from peerwatch_checks.segments.division import LEVELS, Segment, divided
from peerwatch_checks.segments.evidence import TWICE, Evidence, Tolerances, Trained

Places = Mapping[str, Mapping[str, str]]
Kind = Literal["node", "place", "link", "fabric", "undecided"]
WHOLE = "all nodes"
# Of two parts nobody knows which is as it should be.
_ENOUGH_PARTS = 3


@dataclass(frozen=True, slots=True)
class Stage:
    """What trains next, all at the same time.

    Parameters
    ----------
    segments
        No two have a node in common.
    released
        Nodes that are not needed any more: they are healthy.
    """

    segments: tuple[Segment, ...]
    released: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suspect:
    """What is bad.

    Parameters
    ----------
    kind
        ``node``; ``place``: all nodes of a leaf, rack or pod; ``link``: two nodes that do well with
        others; ``fabric``: what joins parts of which none is bad; ``undecided``: a node for whom
        there were not two partners.
    names
        The node, the place, both nodes, or the parts.
    evidence
        What was found, to follow the names.
    ratio
        What was reached over what is usual; for ``slower`` over 1. 0 where nothing was.
    """

    kind: Kind
    names: tuple[str, ...]
    evidence: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Found:
    """What the search came to.

    Parameters
    ----------
    suspects
        Nodes and places first; empty where no part reproduces a fault.
    level
        Bus bandwidth of a healthy part, GB/s.
    """

    suspects: tuple[Suspect, ...]
    level: float


Search = Generator[Stage, Mapping[Segment, Trained], Found]


def search(nodes: Sequence[str], places: Places, tolerances: Tolerances) -> Search:
    """Yield stages, take what came of their segments, and return what is bad.

    Parameters
    ----------
    nodes
        N names, each once; three at least.
    places
        Of each node its places by level.
    tolerances
        What is no fault.
    """
    known = Evidence(tolerances)
    whole, gone = yield from _whole(tuple(nodes), known)
    tree = yield from _bisect(whole, places, known)
    ends = _ends(tree, whole)
    if len(ends) >= _ENOUGH_PARTS and all(known.low(end) for end in ends):
        return _everywhere(known)
    candidates = _candidates(tree, ends, known)
    yield from _confirm(candidates, _helpers(ends, candidates, known), known)
    named = {node: against for node in candidates if (against := _against(node, known)) is not None}
    if len(named) > len(whole.nodes) / 2:
        return _everywhere(known)
    links = yield from _links(candidates, named, known)
    fabric = yield from _fabric(tree, ends, named, links, known)
    suspects = [Suspect("node", (node,), *what) for node, what in {**gone, **named}.items()]
    paired = {node for link in links for node in link.names}
    undecided = [
        Suspect("undecided", (node,), "is low, and there were no two partners to test it with", 0.0)
        for node in candidates
        if node not in named and node not in paired and _is_open(node, known)
    ]
    return Found((*_joined(suspects, nodes, places), *fabric, *links, *undecided), known.level)


def _everywhere(known: Evidence) -> Found:
    text = "fail in most parts: it is what all have in common, a setting or the test itself"
    return Found((Suspect("fabric", (WHOLE,), text, 0.0),), known.level)


def _whole(
    nodes: tuple[str, ...], known: Evidence
) -> Generator[Stage, Mapping[Segment, Trained], tuple[Segment, dict[str, tuple[str, float]]]]:
    """Train all; who is silent twice is gone, and the others train without it."""
    gone: dict[str, tuple[str, float]] = {}
    while True:
        whole = Segment(WHOLE, tuple(node for node in nodes if node not in gone))
        trained = yield Stage((whole,))
        known.take(trained)
        silent = trained[whole].silent
        if not silent or len(whole.nodes) - len(silent) < TWICE:
            return whole, gone
        gone |= {node: ("does not answer", 0.0) for node in silent if known.silent(node) >= TWICE}


def _bisect(
    whole: Segment, places: Places, known: Evidence
) -> Generator[Stage, Mapping[Segment, Trained], dict[Segment, tuple[Segment, ...]]]:
    """Cut and train until no part is low that can be cut; return what was cut into what."""
    tree: dict[Segment, tuple[Segment, ...]] = {}
    cut: tuple[Segment, ...] = (whole,) if len(whole.nodes) > 1 else ()
    released: tuple[str, ...] = ()
    while cut:
        tree |= {segment: divided(segment, places) for segment in cut}
        parts = tuple(part for segment in cut for part in tree[segment])
        known.take((yield Stage(parts, released)))
        ends = _ends(tree, whole)
        few = len(ends) < _ENOUGH_PARTS
        cut = tuple(end for end in ends if len(end.nodes) > TWICE and (few or known.low(end)))
        released = () if few else _not_needed(tree, ends, known)
        known.release(released)
    if released:
        known.take((yield Stage((), released)))
    return tree


def _ends(tree: Mapping[Segment, tuple[Segment, ...]], whole: Segment) -> list[Segment]:
    """Return the segments that were not cut."""
    parts = [part for each in tree.values() for part in each]
    return [part for part in parts if part not in tree] or [whole]


def _not_needed(
    tree: Mapping[Segment, tuple[Segment, ...]], ends: Sequence[Segment], known: Evidence
) -> tuple[str, ...]:
    """Return nodes of healthy parts, without those that are kept to train with suspects.

    Nodes of a whole that is low while its parts are not have to train as a whole again.
    """
    low = [end for end in ends if known.low(end)]
    held = {
        node
        for segment in tree
        if known.low(segment) and not any(_inside(end, segment) for end in low)
        for node in segment.nodes
    }
    free = [
        node
        for end in ends
        if end not in low
        for node in end.nodes
        if node not in known.released and not known.slow(node)
    ]
    slow = [node for end in ends for node in end.nodes if known.slow(node)]
    keep = TWICE * (len(low) + len(slow))
    return tuple(node for node in free[keep:] if node not in held)


def _helpers(ends: Sequence[Segment], candidates: Sequence[str], known: Evidence) -> list[str]:
    """Return who trains with candidates: nodes that are well; all where that is not known."""
    here = [n for end in ends for n in end.nodes if n not in known.released]
    return [node for node in here if node not in candidates] or here


def _candidates(
    tree: Mapping[Segment, tuple[Segment, ...]], ends: Sequence[Segment], known: Evidence
) -> list[str]:
    """Return nodes of parts that are low; single ones if only they are left; slow ones."""
    if sum(len(end.nodes) >= TWICE for end in ends) < TWICE:
        # One pair and a rest: there is nothing that it could be compared with.
        return [node for end in ends for node in end.nodes]
    found = [node for end in ends if known.low(end) for node in end.nodes]
    for segment, parts in tree.items():
        if known.low(segment) and not any(known.low(end) for end in ends if _inside(end, segment)):
            found += [part.nodes[0] for part in parts if len(part.nodes) == 1]
    found += [node for end in ends for node in end.nodes if known.slow(node)]
    return list(dict.fromkeys(found))


def _confirm(
    candidates: Sequence[str], helpers: Sequence[str], known: Evidence
) -> Generator[Stage, Mapping[Segment, Trained], None]:
    """Let each candidate train with healthy partners until it had two distinct ones."""
    wanted = {
        node: [each for each in helpers if each not in {node, *known.partners(node)}][:TWICE]
        for node in candidates
    }
    while any(wanted.values()):
        busy: set[str] = set()
        pairs = []
        for node, partners in wanted.items():
            free = [partner for partner in partners if partner not in busy]
            if node not in busy and free:
                partners.remove(free[0])
                busy |= {node, free[0]}
                pairs.append(Segment(f"{node} with {free[0]}", (node, free[0])))
        known.take((yield Stage(tuple(pairs))))


def _against(node: str, known: Evidence) -> tuple[str, float] | None:
    """Return what speaks against a node after its tests with partners, and its ratio."""
    if known.silent(node) >= TWICE:
        return "does not answer", 0.0
    if (times := known.slow(node)) and known.runs(node) >= TWICE:
        return f"computes {times:.2g} times as long as its peers, in each run", times
    partners = known.partners(node)
    if len(partners) >= TWICE and all(map(known.is_low_pair, partners.values())):
        best = max(partners.values())
        why = known.failure(node)
        text = f"does {best:.3g} of {known.level:.3g} GB/s with {len(partners)} partners"
        return (f"{text} ({why})" if why else text), best / known.level if known.level else 0.0
    return None


def _is_open(node: str, known: Evidence) -> bool:
    partners = known.partners(node)
    return len(partners) < TWICE and all(map(known.is_low_pair, partners.values()))


def _links(
    candidates: Sequence[str], named: Mapping[str, object], known: Evidence
) -> Generator[Stage, Mapping[Segment, Trained], list[Suspect]]:
    """Return pairs that are low again when repeated, of nodes that do well with others."""
    good = [n for n in candidates if n not in named and not _is_open(n, known)]
    found: list[Suspect] = []
    for node in good:
        for partner, value in known.partners(node).items():
            fresh = all(partner not in link.names or node not in link.names for link in found)
            if fresh and partner not in named and known.is_low_pair(value):
                pair = Segment(f"{node} with {partner} again", (node, partner))
                known.take((yield Stage((pair,))))
                again = known.partners(node)[partner]
                if known.is_low_pair(again):
                    text = f"do {again:.3g} of {known.level:.3g} GB/s, with others more"
                    found.append(Suspect("link", (node, partner), text, again / known.level))
    return found


def _fabric(
    tree: Mapping[Segment, tuple[Segment, ...]],
    ends: Sequence[Segment],
    named: Mapping[str, object],
    links: Sequence[Suspect],
    known: Evidence,
) -> Generator[Stage, Mapping[Segment, Trained], list[Suspect]]:
    """Return what joins parts that are well, where the whole of them is low when repeated too."""
    blamed = {*named, *(node for link in links for node in link.names)}
    found: list[Suspect] = []
    for segment, parts in reversed(list(tree.items())):
        if len(segment.nodes) <= TWICE or (blamed | known.released) & set(segment.nodes):
            continue
        if not known.low_whole(segment) or any(
            known.low(end) for end in ends if _inside(end, segment)
        ):
            continue
        known.take((yield Stage((segment,))))
        if known.low_whole(segment):
            reached = known.reached(segment)
            text = f"{segment.name} does {reached:.3g} GB/s, each part {known.level:.3g}"
            names = tuple(part.name for part in parts)
            ratio = reached / known.level if known.level else 0.0
            found.append(Suspect("fabric", names, text, ratio))
            blamed |= set(segment.nodes)
    return found


def _inside(part: Segment, segment: Segment) -> bool:
    return set(part.nodes) <= set(segment.nodes)


def _joined(suspects: Sequence[Suspect], nodes: Sequence[str], places: Places) -> list[Suspect]:
    """Put a place where all of its nodes are named, the largest of such places first."""
    rest = {each.names[0]: each for each in suspects}
    found: list[Suspect] = []
    for level in LEVELS:
        groups: dict[str, list[str]] = {}
        for node in nodes:
            if place := places.get(node, {}).get(level):
                groups.setdefault(place, []).append(node)
        for place, inside in groups.items():
            # All nodes of the job in one place say nothing about the place.
            if TWICE <= len(inside) < len(nodes) and all(node in rest for node in inside):
                worst = min((rest[node] for node in inside), key=lambda each: each.ratio)
                text = f"all of its {len(inside)} nodes are bad; {worst.names[0]} {worst.evidence}"
                found.append(Suspect("place", (f"{level} {place}",), text, worst.ratio))
                rest = {node: each for node, each in rest.items() if node not in inside}
    return [*found, *rest.values()]
