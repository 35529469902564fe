"""Reads the settings file and the checks it names; every mistake at once, as a sentence."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from peerwatch_checks.check import SUITES, Check, Options, checks, options_of
from peerwatch_checks.settings.config import ChecksConfig
from peerwatch_common.errors import ConfigError
from peerwatch_common.logs import one_line
from peerwatch_common.settings.load import mistakes_of, validated
from peerwatch_common.settings.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMANDS = (*SUITES, "pair", "offline", "list")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is made of.

    Parameters
    ----------
    config
        The settings.
    checks
        All checks there are, by name.
    options
        The settings of each check, by its name.
    """

    config: ChecksConfig
    checks: Mapping[str, Check]
    options: Mapping[str, Options]


def load_settings(path: Path | None) -> Settings:
    """Return the settings of a file; None: the defaults.

    Raises
    ------
    ConfigError
        With every mistake found, each with its path.
    """
    config = validated(ChecksConfig, read_yaml(path) if path is not None else {})
    known = _known(config)
    mistakes = [
        f"{place}: {unknown_check(name, known)}"
        for place, names in (("exclude", config.exclude), ("checks", config.checks))
        for name in names
        if name not in known
    ]
    options: dict[str, Options] = {}
    for name, check in known.items():
        try:
            options[name] = options_of(check, config.checks.get(name, {}))
        except ValidationError as error:
            mistakes += [f"checks.{name}.{each}" for each in mistakes_of(error, check.options)]
    if mistakes:
        raise ConfigError(mistakes)
    return Settings(config, known, options)


def unknown_check(name: str, known: Mapping[str, Check]) -> str:
    """Return a sentence about a name that is no check's."""
    close = difflib.get_close_matches(name, [*known, *COMMANDS], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`peerwatch-check list` shows all"
    return one_line(f"there is no check {name[:100]!r}; {hint}")


def _known(config: ChecksConfig) -> dict[str, Check]:
    try:
        found = checks(config.folders)
    except Exception as error:  # a file of the site's own may raise anything
        text = one_line(f"folders: {type(error).__name__}: {error}")
        raise ConfigError([text]) from error
    taken = [name for name in found if name in COMMANDS]
    if taken:
        raise ConfigError([f"folders: {taken[0]!r} is a command; give the check another name"])
    return found
