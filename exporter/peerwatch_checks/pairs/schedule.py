"""Who is paired with whom, in which round: a round pairs each node at most once.

Where most nodes are healthy, d + 1 rounds with distinct partners name up to d bad nodes exactly:
each healthy node then has met a healthy one, and no partner makes a bad one look good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Pair = tuple[str, str]
Round = tuple[Pair, ...]
Places = Mapping[str, Mapping[str, str]]


def pair_of(a: str, b: str) -> Pair:
    """Return two nodes as a pair: in order of name."""
    return (a, b) if a <= b else (b, a)


def all_pairs(nodes: Sequence[str]) -> tuple[Round, ...]:
    """Return the rounds of a round-robin tournament, by the circle method.

    Parameters
    ----------
    nodes
        N names, each once.

    Returns
    -------
    tuple of rounds
        All pairs, each once: N - 1 rounds of N / 2 pairs; where N is odd, N rounds in each of
        which another node rests.
    """
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1 if len(nodes) > 1 else 0):
        half = len(circle) // 2
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append(tuple(pair_of(a, b) for a, b in facing if a is not None and b is not None))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(rounds)


def near_to_far(nodes: Sequence[str], places: Places, partners: int = 3) -> tuple[Round, ...]:
    """Return rounds in which each node meets distinct partners, near ones first.

    The first round pairs neighbours under one leaf switch, the second nodes of one pod under
    different leaves, all later ones nodes of different pods, as far as there are such. Whoever
    rests in a round, because nobody is left whom it has not met, makes up for it at the end.

    Parameters
    ----------
    nodes
        N names, each once.
    places
        Of each node its ``leaf`` and ``pod``. Nodes without a level count as one place there.
    partners
        How many each node meets; more than N - 1 are not to be had.

    Returns
    -------
    tuple of rounds
        ``partners`` rounds, then those in which nodes make up for a rest.
    """
    wanted = min(partners, len(nodes) - 1)
    met: dict[str, set[str]] = {node: set() for node in nodes}
    rounds: list[Round] = []

    def play(those: Sequence[str], distance: int) -> bool:
        def dislike(a: str, b: str) -> int:
            return abs(_distance(places, a, b) - distance)

        found = _matched(those, met, dislike)
        for a, b in found:
            met[a].add(b)
            met[b].add(a)
        if found:
            rounds.append(found)
        return bool(found)

    ordered = sorted(nodes, key=lambda node: (*_place(places, node), node))
    for turn in range(wanted):
        # Who has rested most is served first.
        play(sorted(ordered, key=lambda node: len(met[node])), min(turn, 2))
    while short := [node for node in ordered if len(met[node]) < wanted]:
        helpers = [node for node in ordered if len(met[node]) >= wanted]
        if not play([*short, *helpers[: len(short)]], 2) and not play([*short, *helpers], 2):
            break
    return tuple(rounds)


def _place(places: Places, node: str) -> tuple[str, str]:
    place = places.get(node, {})
    return place.get("pod", ""), place.get("leaf", "")


def _distance(places: Places, a: str, b: str) -> int:
    """Return 0 for one leaf, 1 for two leaves of a pod, 2 for two pods."""
    (pod_a, leaf_a), (pod_b, leaf_b) = _place(places, a), _place(places, b)
    return 2 if pod_a != pod_b else int(leaf_a != leaf_b)


def _matched(
    nodes: Sequence[str], met: Mapping[str, set[str]], dislike: Callable[[str, str], int]
) -> Round:
    """Pair nodes that have not met; each takes whom it dislikes least of those that are left."""
    free = list(nodes)
    pairs: list[Pair] = []
    alone: list[str] = []
    while free:
        node = free.pop(0)
        partner = min(
            (each for each in free if each not in met[node]),
            key=lambda each: dislike(node, each),
            default=None,
        )
        if partner is None:
            alone.append(node)
        else:
            free.remove(partner)
            pairs.append((node, partner))
    while len(alone) > 1 and _rearranged(alone, pairs, met):
        pass
    return tuple(pair_of(a, b) for a, b in pairs)


def _rearranged(alone: list[str], pairs: list[Pair], met: Mapping[str, set[str]]) -> bool:
    """Break up one pair for two nodes that are left over because they have met each other."""
    for i, a in enumerate(alone):
        for b in alone[i + 1 :]:
            for place, (c, d) in enumerate(pairs):
                for first, second in ((c, d), (d, c)):
                    if first not in met[a] and second not in met[b]:
                        pairs[place : place + 1] = [(a, first), (b, second)]
                        alone.remove(a)
                        alone.remove(b)
                        return True
    return False
