"""What the exporter raises about its settings."""

from __future__ import annotations


class ConfigError(Exception):
    """The configuration cannot be used; ``mistakes`` has one line for each mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes
