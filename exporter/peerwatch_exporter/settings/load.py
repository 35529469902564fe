"""Reads the settings file and tells every mistake in it at once, each as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import validated, with_changes
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_exporter.settings.config import ExporterConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


def load_config(
    path: Path | None,
    *,
    listen: str | None,
    known_collectors: Collection[str],
    overrides: Mapping[str, Mapping[str, object]] | None = None,
) -> ExporterConfig:
    """Return the settings of a YAML file, or the defaults if there is none.

    Parameters
    ----------
    path
        The file; ``None`` for defaults only.
    listen
        ``HOST:PORT`` from the command line, which wins over the file.
    known_collectors
        Names that may stand in ``collectors.enabled`` and ``collectors.disabled``.
    overrides
        Other settings from the command line, by section and key; they win over the file.

    Raises
    ------
    ConfigError
        With every mistake found, each with its path.
    """
    mistakes: list[str] = []
    data = read_yaml(path) if path is not None else {}
    if listen is not None:
        override = _parse_listen(listen)
        if override is None:
            mistakes.append(f"--listen: {listen!r} is not HOST:PORT, for example 127.0.0.1:9400")
        elif isinstance(data.get("listen", {}), dict):
            data = {**data, "listen": {**data.get("listen", {}), **override}}
    config = None
    try:
        config = validated(ExporterConfig, with_changes(data, overrides or {}))
    except ConfigError as error:
        mistakes += error.mistakes
    mistakes += _unknown_collectors(data.get("collectors"), known_collectors)
    if mistakes or config is None:
        raise ConfigError(mistakes)
    return config


def _parse_listen(listen: str) -> dict[str, str | int] | None:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        return None
    return {"address": host, "port": int(port)}


def _unknown_collectors(section: object, known: Collection[str]) -> list[str]:
    if not isinstance(section, dict):
        return []
    return [
        f"collectors.{key}.{index}: no collector {name!r}; there are {', '.join(sorted(known))}"
        for key in ("enabled", "disabled")
        if isinstance(section.get(key), list)
        for index, name in enumerate(section[key])
        if isinstance(name, str) and name not in known
    ]
