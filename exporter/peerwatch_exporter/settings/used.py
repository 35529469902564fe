"""Which settings a collector was made of, and how it follows others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_exporter.settings.config import ExporterConfig


Collector = TypeVar("Collector")


class UsedSettings:
    """Settings that remember which of their sections were asked for.

    Parameters
    ----------
    config
        The settings.

    Attributes
    ----------
    sections
        The names asked for.
    """

    def __init__(self, config: ExporterConfig) -> None:
        self._config = config
        self.sections: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.sections.add(name)
        return getattr(self._config, name)


def changed_collector(
    before: Collector, settings: object, make: Callable[[], Collector]
) -> Collector:
    """Return a collector that follows other settings: the same one, if it can, else a new one."""
    follow = getattr(before, "follow", None)
    if follow is None:
        return make()
    follow(settings)
    return before
