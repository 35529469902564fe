"""The hosts of a simulated job: names, racks, addresses, clocks, and who is who in a mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

# Naming schemes of clusters; none may help or hinder.
_NAMES: tuple[Callable[[int], str], ...] = (
    lambda number: f"gpu-{number:04d}",
    lambda number: f"r{number // 16:02d}-n{number % 16:02d}",
    lambda number: f"ip-10-{number // 250}-{number % 250}-17",
    lambda number: f"h100-slc1-{number:03d}",
    lambda number: f"node{number}",
    lambda number: f"dgx-{chr(97 + number % 26)}{number:03d}.cluster.local",
)
# Drawn from: nodes in a rack, and GPUs in a node, which most often has eight.
_RACK_SIZES = (4, 8, 16)
_GPUS = (8, 8, 8, 4)
# Chosen: hosts that keep time by NTP differ by milliseconds, some by seconds.
_MOST_SKEW_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of a job, by their place in it.

    Parameters
    ----------
    names, addresses
        Of each host.
    racks
        The number of each host's rack.
    gpus
        GPUs of a host; each has a rank.
    skews
        How far each host's clock is ahead, in seconds.
    roles
        Hosts by role.
    gpu
        The GPU that fails, of each host: only that of a role matters.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    racks: tuple[int, ...]
    gpus: int
    skews: tuple[float, ...]
    roles: Mapping[str, tuple[int, ...]]
    gpu: tuple[int, ...]

    def select(self, selector: str, random: Random, of: str = "") -> tuple[int, ...]:
        """Return the hosts of a selector, see ``Line.where``.

        Parameters
        ----------
        selector
            Such as ``one of others``.
        random
            Draws where there is a choice.
        of
            The role that a fan-out is played for: ``others`` are then those without it.
        """
        if selector.startswith("one of "):
            among = self.select(selector.removeprefix("one of "), random, of)
            return (random.choice(among),) if among else ()
        if selector.startswith("neighbours of "):
            return self._neighbours(selector.removeprefix("neighbours of "), random)
        everyone = tuple(range(len(self.names)))
        if selector == "all":
            return everyone
        failed = {*self.roles[of]} if of in self.roles else self._failed()
        rack = self.racks[self.roles["culprit"][0]]
        sets = {
            "others": tuple(host for host in everyone if host not in failed),
            "rack": tuple(host for host in everyone if self.racks[host] == rack),
            "outside": tuple(host for host in everyone if self.racks[host] != rack),
        }
        return sets[selector] if selector in sets else self.roles[selector]

    def peer(self, selector: str, host: int, random: Random) -> int | None:
        """Return whom a host complains about; None if there is nobody."""
        if selector == "neighbour":
            among = [(host + 1) % len(self.names), (host - 1) % len(self.names)]
        elif selector == "any":
            among = list(range(len(self.names)))
        else:
            among = list(self.select(selector, random))
        among = [other for other in among if other != host]
        return random.choice(among) if among else None

    def places(self) -> JobPlaces:
        """Return who is who, as the diagnosis knows it."""
        return JobPlaces(
            self.names,
            {rank: self.names[rank // self.gpus] for rank in range(len(self.names) * self.gpus)},
            {
                name: {"rack": f"rack-{rack}", "leaf": f"leaf-{rack}"}
                for name, rack in zip(self.names, self.racks, strict=True)
            },
            dict(zip(self.addresses, self.names, strict=True)),
        )

    def _failed(self) -> set[int]:
        return {host for role in ("culprit", "second") for host in self.roles.get(role, ())}

    def _neighbours(self, role: str, random: Random) -> tuple[int, ...]:
        """Return the hosts nearest in the ring; a larger job's trees and groups reach farther."""
        centre = set(self.select(role, random))
        reach = random.randint(1, 8)
        near = {
            (host + step) % len(self.names) for host in centre for step in range(-reach, reach + 1)
        }
        return tuple(sorted(near - centre))


def draw_hosts(random: Random, nodes: tuple[int, int], roles: Mapping[str, int]) -> Hosts:
    """Draw the hosts of a job; small jobs are as frequent as large ones by their logarithm.

    Parameters
    ----------
    random
        Draws everything.
    nodes
        Fewest and most nodes.
    roles
        How many hosts each role has, beside ``culprit``.
    """
    low, high = nodes
    count = min(high, max(low, round(low * (high / low) ** random.random())))
    rack_size = random.choice([size for size in _RACK_SIZES if size * 2 <= count] or [count])
    name = random.choice(_NAMES)
    first = random.randrange(1, 200)
    numbers = random.sample(range(first, first + 2 * count), count)
    order = random.sample(range(count), count)
    wanted = {"culprit": 1, **roles, "bystander": 1}
    drawn: dict[str, tuple[int, ...]] = {"rank0": (0,)}
    for role, amount in wanted.items():
        drawn[role] = tuple(order[:amount])
        order = order[amount:] or order
    gpus = random.choice(_GPUS)
    return Hosts(
        tuple(name(number) for number in numbers),
        tuple(f"10.{random.randrange(8)}.{host // 200}.{host % 200 + 11}" for host in range(count)),
        tuple(host // rack_size for host in range(count)),
        gpus,
        tuple(
            max(-_MOST_SKEW_SECONDS, min(_MOST_SKEW_SECONDS, random.gauss(0, 0.4)))
            for _ in range(count)
        ),
        drawn,
        tuple(random.randrange(gpus) for _ in range(count)),
    )
