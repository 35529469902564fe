"""``--prometheus``, ``--job-id``, ``--selector``: they win over the settings of ``peer_config``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from peerwatch_checks.check import options_of
from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import mistakes_of

if TYPE_CHECKING:
    import argparse

    from peerwatch_checks.settings.load import Settings

_CHECK = "peer_config"
_FLAGS = {"url": "prometheus", "job_id": "job_id", "selector": "selector"}


def with_peers(settings: Settings, options: argparse.Namespace) -> Settings:
    """Return the settings with what the flags say.

    Raises
    ------
    ConfigError
        If a flag says what its setting must not be.
    """
    given = {name: getattr(options, flag) for name, flag in _FLAGS.items()}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return settings
    check = settings.checks[_CHECK]
    try:
        found = options_of(check, {**settings.config.checks.get(_CHECK, {}), **given})
    except ValidationError as error:
        mistakes = [f"{_CHECK}.{each}" for each in mistakes_of(error, check.options)]
        raise ConfigError(mistakes) from error
    return replace(settings, options={**settings.options, _CHECK: found})
