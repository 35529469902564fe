"""The exporter's settings as plain data, for processes that must not pay for pydantic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any


def to_plain(value: object) -> Any:  # noqa: ANN401 - plain data of any shape
    """Return a settings section (or a value in it) as numbers, texts, lists and pairs.

    Raises
    ------
    TypeError
        If a value is of a kind that settings do not have.
    """
    fields = vars(value) if isinstance(value, SimpleNamespace) else None
    fields = getattr(type(value), "model_fields", fields)
    if fields is not None:
        return "section", [(name, to_plain(getattr(value, name))) for name in fields]
    if isinstance(value, Path):
        return "path", str(value)
    if isinstance(value, dict):
        return "map", [(to_plain(key), to_plain(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return "list", [to_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return "value", value
    raise TypeError(f"A setting of type {type(value).__name__} cannot be handed on.")


def from_plain(plain: Any) -> Any:  # noqa: ANN401 - plain data of any shape
    """Return what ``to_plain`` was given; sections are namespaces with the same attributes."""
    kind, value = plain
    if kind == "section":
        return SimpleNamespace(**{name: from_plain(item) for name, item in value})
    if kind == "map":
        return {from_plain(key): from_plain(item) for key, item in value}
    if kind == "list":
        return [from_plain(item) for item in value]
    return Path(value) if kind == "path" else value
