"""Looks for the logs of the targets, and has them followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.logs.found import Claim, Unread
from peerwatch_exporter.sources.logs.owners import owner_of
from peerwatch_exporter.sources.logs.tail import Position, end_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_exporter.sources.logs.follower import Follower
    from peerwatch_exporter.sources.logs.found import Guard, Provider, Reason
    from peerwatch_exporter.sources.logs.owners import FileSystems
    from peerwatch_exporter.sources.logs.tail import FileKey
    from peerwatch_exporter.sources.logs.targets import Targets

# What is found this long after the start was there before it: chosen, five searches.
_START_SECONDS = 10.0
_MOST_POSITIONS = 50_000  # as in ``process``


class Search:
    """Finds files by all providers, decides whose they are, and from where they are read.

    Parameters
    ----------
    providers
        Where to look.
    follower
        Follows what is found.
    file_systems
        Which of them are of this node alone.
    guard
        Notes what is touched.
    tail_bytes
        How much of an old file is read.
    started
        When the exporter started (Unix time).
    positions
        How far files were read before, by a process that was ended.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        follower: Follower,
        file_systems: FileSystems,
        guard: Guard,
        *,
        tail_bytes: int,
        started: float,
        positions: dict[FileKey, Position],
    ) -> None:
        self._providers = providers
        self._follower = follower
        self._file_systems = file_systems
        self._guard = guard
        self._tail_bytes = tail_bytes
        self._started = started
        self._positions = positions

    def run(self, targets: Targets, now: float) -> dict[Reason, int]:
        """Follow what there is now; return how many outputs are not read, by reason.

        Parameters
        ----------
        targets
            Whose logs are wanted.
        now
            Unix time.
        """
        claims: dict[FileKey, list[Claim]] = {}
        unread: dict[Reason, int] = {}
        for provider in self._providers:
            for found in provider.find(targets, self._guard):
                if isinstance(found, Unread):
                    unread[found.reason] = unread.get(found.reason, 0) + 1
                else:
                    claims.setdefault(found.key, []).append(found)
        self._guard.leave()
        for key, of_file in claims.items():
            reason = self._follow(key, of_file, targets, now)
            if reason is not None:
                unread[reason] = unread.get(reason, 0) + 1
        self._guard.leave()
        return unread

    def remember(self) -> dict[FileKey, Position]:
        """Return the positions that changed since the last call."""
        changed = {}
        for key, followed in self._follower.files.items():
            position = followed.tail.position
            if self._positions.get(key) != position:
                changed[key] = self._positions[key] = position
        while len(self._positions) > _MOST_POSITIONS:
            del self._positions[next(iter(self._positions))]
        return changed

    def _follow(
        self, key: FileKey, claims: Sequence[Claim], targets: Targets, now: float
    ) -> Reason | None:
        owner = owner_of(claims, targets, is_local=self._file_systems.is_local(key[0]))
        status = claims[0].status
        is_old = status.st_mtime < self._started or now - self._started < _START_SECONDS
        position = self._positions.get(key)
        if position is None:
            position = end_of(status.st_size, self._tail_bytes) if is_old else Position(0, b"")
        elif status.st_size < position.offset:
            position = Position(0, b"")
        return self._follower.follow(claims[0], owner, position, old=is_old)
