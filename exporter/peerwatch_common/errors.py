"""What every program raises on purpose."""

from __future__ import annotations


class PeerwatchError(Exception):
    """Root of everything that is raised on purpose; the message is meant for a person."""


class ConfigError(PeerwatchError):
    """The configuration cannot be used.

    Parameters
    ----------
    mistakes
        Every mistake found, each as ``path: what is wrong, the limit, what to do``.
    """

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes
