"""Files that the settings name, as patterns with the job's id and the rank's number."""

from __future__ import annotations

import glob
import itertools
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.logs.found import Claim, Unread, reason_of, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from peerwatch_exporter.sources.logs.found import Guard
    from peerwatch_exporter.sources.logs.targets import Targets


class ConfiguredPaths:
    """Finds the files that patterns match.

    Parameters
    ----------
    patterns
        Absolute paths with wildcards, ``{job_id}`` and ``{rank}``.
    most_files
        Of one pattern.
    """

    name = "path"

    def __init__(self, patterns: Sequence[str], most_files: int) -> None:
        self._patterns = patterns
        self._most_files = most_files

    def find(self, targets: Targets, guard: Guard) -> Iterator[Claim | Unread]:
        """Yield the files of all patterns."""
        for pattern in self._patterns:
            for job_id, rank, expanded in expanded_patterns(pattern, targets):
                try:
                    guard.enter(pattern)
                except OSError as error:
                    yield Unread(self.name, reason_of(error))
                    break
                yield from self._files(pattern, expanded, job_id, rank)

    def _files(
        self, pattern: str, expanded: str, job_id: str, rank: int | None
    ) -> Iterator[Claim | Unread]:
        found = glob.iglob(expanded, recursive=True)  # noqa: PTH207 - Path.glob takes no root
        for path in itertools.islice(found, self._most_files):
            status = status_of(path)
            if status == "not_a_file":
                # A directory beside the files.
                continue
            if isinstance(status, str):
                yield Unread(self.name, status)
                continue
            yield Claim(path, pattern, self.name, status, job_id, rank, names_rank=rank is not None)


def expanded_patterns(pattern: str, targets: Targets) -> Iterator[tuple[str, int | None, str]]:
    """Yield job id, rank and pattern for each job and rank of this node that a pattern asks for.

    A pattern without ``{job_id}`` is of the node's only job, or of none if there are several.
    """
    if "{rank}" in pattern:
        for rank in targets.ranks:
            yield from _expanded(pattern, rank.job_id, rank.rank)
    elif "{job_id}" in pattern:
        for job_id in targets.job_ids:
            yield from _expanded(pattern, job_id, None)
    else:
        job_ids = targets.job_ids
        yield from _expanded(pattern, job_ids[0] if len(job_ids) == 1 else "", None)


def _expanded(pattern: str, job_id: str, rank: int | None) -> Iterator[tuple[str, int | None, str]]:
    # Anybody may call a job whatever they like: its id is one name in a path.
    name = job_id.replace("/", "_")
    if "{job_id}" in pattern and (not name or set(name) == {"."}):
        return
    number = "" if rank is None else str(rank)
    yield job_id, rank, pattern.format(job_id=glob.escape(name), rank=number)
