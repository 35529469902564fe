"""Container logs of the pods in which ranks run, as the kubelet lays them out.

``<directory>/<namespace>_<pod>_<uid>/<container>/<restarts>.log``, in the CRI's format; the
kubelet's rotation renames the file and has the runtime begin another one.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.logs.found import Claim, Unread, reason_of, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peerwatch_exporter.sources.logs.found import Guard
    from peerwatch_exporter.sources.logs.targets import Targets

_LOG = re.compile(r"(\d{1,9})\.log")
_MOST_CONTAINERS = 64  # of one pod; even large ones have a dozen


class PodLogs:
    """Finds the newest log of each container.

    Parameters
    ----------
    directory
        That of the kubelet, usually ``/var/log/pods``.
    """

    name = "pod"

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def find(self, targets: Targets, guard: Guard) -> Iterator[Claim | Unread]:
        """Yield the logs of the pods that ranks run in."""
        pods: dict[str, list[tuple[str, int]]] = {}
        for rank in targets.ranks:
            if rank.pod_uid:
                pods.setdefault(rank.pod_uid, []).append((rank.job_id, rank.rank))
        if not pods:
            return
        try:
            guard.enter(self._directory)
            names = os.listdir(self._directory)  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            return
        except OSError as error:
            yield Unread(self.name, reason_of(error))
            return
        for name in names:
            ranks = pods.get(name.rpartition("_")[2])
            if ranks is not None:
                yield from self._pod(f"{self._directory}/{name}", ranks, guard)

    def _pod(
        self, directory: str, ranks: list[tuple[str, int]], guard: Guard
    ) -> Iterator[Claim | Unread]:
        job_id, rank = ranks[0]
        try:
            guard.enter(self._directory)
            containers = sorted(os.listdir(directory))[:_MOST_CONTAINERS]  # noqa: PTH208
            newest = {container: _newest(f"{directory}/{container}") for container in containers}
        except OSError as error:
            yield Unread(self.name, reason_of(error))
            return
        for container, log in newest.items():
            if log is None:
                continue
            path = f"{directory}/{container}/{log}"
            status = status_of(path)
            if isinstance(status, str):
                yield Unread(self.name, status)
                continue
            owner = rank if len(ranks) == 1 else None
            yield Claim(
                path,
                self._directory,
                self.name,
                status,
                job_id,
                owner,
                names_rank=owner is not None,
                # A kubelet writes the logs of its own node.
                only_here=True,
            )


def _newest(directory: str) -> str | None:
    """Return the name of a container's newest log; None if it has none."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are all that is needed
    except NotADirectoryError:
        return None
    logs = [match for name in names if (match := _LOG.fullmatch(name))]
    return max(logs, key=lambda match: int(match[1]))[0] if logs else None
