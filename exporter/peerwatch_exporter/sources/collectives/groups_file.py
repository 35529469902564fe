"""What the hook writes beside the recorder's socket: the members of each process group."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.members import parse_members
from peerwatch_exporter.sources.collectives.telemetry import GroupInfo
from peerwatch_exporter.sources.files.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Chosen: a rank is in some tens of groups; 1,024 of a kilobyte make the file, and names and reasons
# become labels.
_LARGEST_FILE_BYTES = 1 << 20
_MOST_GROUPS = 1024
_LONGEST_NAME = 128
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class GroupsFile:
    """What one process said.

    Parameters
    ----------
    pid
        Which process; None if it does not say.
    unavailable
        Why there is no socket; empty if there is one.
    groups
        By name.
    """

    pid: int | None
    unavailable: str
    groups: Mapping[str, GroupInfo]


def read_groups(path: Path) -> GroupsFile | None:
    """Return what stands in a file; None if there is none.

    Raises
    ------
    CollectiveSourceError
        If it cannot be read, or is something else.
    """
    try:
        document = json.loads(read_regular(str(path), _LARGEST_FILE_BYTES).content)
        if not isinstance(document, dict):
            raise ValueError(f"holds {type(document).__name__}, not an object")
        groups = document.get("groups", [])
        if not isinstance(groups, list):
            raise ValueError("groups is no list")
        infos = [_group(group) for group in groups[:_MOST_GROUPS]]
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise CollectiveSourceError("permission_denied", f"{path}: {error.strerror}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CollectiveSourceError("garbled_groups", f"{path}: {error}") from error
    pid = document.get("pid")
    return GroupsFile(
        pid=pid if isinstance(pid, int) else None,
        unavailable=str(document.get("unavailable") or "")[:_LONGEST_REASON],
        groups={info.name: info for info in infos},
    )


def _group(group: object) -> GroupInfo:
    if not isinstance(group, dict):
        raise ValueError(f"a group is {type(group).__name__}, not an object")
    texts = [group.get(key, "") for key in ("name", "description", "members")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"name, description or members of {group!r:.80} is no text")
    name, description, members = texts
    if not name or len(name) > _LONGEST_NAME:
        raise ValueError(f"the group's name {name!r:.40} has not 1 to {_LONGEST_NAME} characters")
    size = sum(map(len, parse_members(members)))
    return GroupInfo(name, description[:_LONGEST_NAME], members, size)
