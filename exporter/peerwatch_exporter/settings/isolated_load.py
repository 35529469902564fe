"""Lets a short-lived process read the settings, so that the exporter need not carry pydantic.

Checking the settings with pydantic takes 17 MiB that a process never gives back; nothing of it is
needed afterwards. ``SettingsReader`` runs this module with ``python -m``, which answers with the
settings, or with every mistake in them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, cast

from peerwatch_common.errors import ConfigError
from peerwatch_exporter.settings.plain import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from peerwatch_exporter.settings.config import ExporterConfig

_MODULE = "peerwatch_exporter.settings.isolated_load"


class SettingsReader:
    """A process that reads the settings once, and meanwhile loads what it needs for that.

    That takes a third of a second, so it is started before the settings can be asked for. It ends
    by itself if they never are.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def load(
        self,
        path: Path | None,
        *,
        listen: str | None,
        known_collectors: Collection[str],
        overrides: Mapping[str, Mapping[str, object]],
    ) -> ExporterConfig:
        """Return the settings as ``load_config`` reads them, as plain namespaces of the same shape.

        Parameters
        ----------
        path, listen, known_collectors, overrides
            As for ``load_config``.

        Raises
        ------
        ConfigError
            With every mistake found.
        """
        request = {
            "path": None if path is None else str(path),
            "listen": listen,
            "known_collectors": sorted(known_collectors),
            "overrides": {
                section: {name: str(value) for name, value in values.items()}
                for section, values in overrides.items()
            },
        }
        answer, _ = self._process.communicate(json.dumps(request).encode())
        if self._process.returncode:
            status = self._process.returncode
            raise ConfigError([f"the settings could not be read: exit status {status}"])
        mistakes, plain = json.loads(answer)
        if mistakes:
            raise ConfigError(mistakes)
        return cast("ExporterConfig", from_plain(plain))


def main() -> int:
    """Answer the request on standard input."""
    from pathlib import Path  # noqa: PLC0415 - only this process reads files

    from peerwatch_exporter.settings.load import load_config  # noqa: PLC0415 - it loads pydantic

    asked = sys.stdin.read()
    if not asked:
        return 0
    request = json.loads(asked)
    path = request["path"]
    mistakes: list[str] = []
    plain = None
    try:
        config = load_config(
            None if path is None else Path(path),
            listen=request["listen"],
            known_collectors=request["known_collectors"],
            overrides=request["overrides"],
        )
        plain = to_plain(config)
    except ConfigError as error:
        mistakes = error.mistakes
    json.dump([mistakes, plain], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
