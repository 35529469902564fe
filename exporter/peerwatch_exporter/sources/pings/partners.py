"""Which of many nodes a node pings: as many as allowed, so that each is pinged by as many."""

from __future__ import annotations

import hashlib
import ipaddress
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


def partners(peers: Iterable[str], own: Collection[str], most: int, name: str) -> tuple[str, ...]:
    """Return the addresses that a node pings, in their order.

    All nodes stand in a ring, in the order of their addresses, and each pings those at the same
    distances: 1, 2, 4, 8 and so on, from the neighbour below the same switch to the other end. So
    each node is pinged by as many as it pings itself, and with ``d + 1`` partners ``d`` bad nodes
    are told from the others.

    Parameters
    ----------
    peers
        Addresses of all nodes.
    own
        Those of them that are this node's.
    most
        How many it pings at most.
    name
        The node's name: its place in the ring, if none of the addresses is its own.
    """
    ring = sorted(set(peers), key=_numeric)
    others = [address for address in ring if address not in own]
    if len(others) <= most:
        return tuple(others)
    places = [place for place, address in enumerate(ring) if address in own]
    if not places:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        places = [int.from_bytes(digest, "big") % len(ring)]
    each = [_partners_of(place, ring, own, most) for place in places]
    mixed = [address for turn in zip_longest(*each) for address in turn if address is not None]
    return tuple(sorted(list(dict.fromkeys(mixed))[:most], key=_numeric))


def _partners_of(
    place: int, ring: list[str], own: Collection[str], most: int
) -> Iterator[str | None]:
    for distance in _distances(len(ring), most):
        address = ring[(place + distance) % len(ring)]
        if address not in own:
            yield address


def _distances(count: int, most: int) -> list[int]:
    """Return distances in the ring in the order in which they are used."""
    powers = [1 << exponent for exponent in range((count - 1).bit_length())]
    if len(powers) > most:
        # Few may be pinged: some near, some far.
        last = len(powers) - 1
        chosen = dict.fromkeys(powers[round(n * last / (most - 1))] for n in range(most))
    else:
        chosen = dict.fromkeys(powers)
    # Others follow, for what is left over or is this node itself.
    return list(chosen) + [each for each in range(1, count) if each not in chosen]


def _numeric(address: str) -> tuple[int, int]:
    number = ipaddress.ip_address(address)
    return number.version, int(number)
