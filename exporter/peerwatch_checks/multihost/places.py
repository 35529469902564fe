"""Where nodes stand, from a file: below which leaf switch, in which pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.settings.yaml_file import read_yaml

if TYPE_CHECKING:
    from pathlib import Path


def read_places(path: Path | None) -> dict[str, dict[str, str]]:
    """Return of each node its places by level, such as ``leaf`` and ``pod``.

    Parameters
    ----------
    path
        A YAML file: below each node's name its places. None: nothing is known.

    Raises
    ------
    ConfigError
        If it cannot be read or is no YAML.
    ValueError
        If it says something else.
    """
    if path is None:
        return {}
    found: object = read_yaml(path)
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError(f"{path}: below each node's name there must be its leaf and pod.")
    return {
        str(node): {str(level): str(name) for level, name in place.items()}
        for node, place in found.items()
    }
