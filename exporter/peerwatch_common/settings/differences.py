"""Which settings differ between two readings of a file, and a reading without some of them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar, cast

Settings = TypeVar("Settings")


def differences(before: object, after: object) -> list[str]:
    """Return the paths of the settings that differ, such as ``fast.history_seconds``.

    Parameters
    ----------
    before, after
        Sections of one shape: of pydantic, or namespaces.
    """
    return list(_differences(before, after, ""))


def is_under(path: str, sections: Collection[str]) -> bool:
    """Return whether a setting is one of these, or stands in one of these sections."""
    return any(path == section or path.startswith(f"{section}.") for section in sections)


def with_settings_of(settings: Settings, other: Settings, paths: Collection[str]) -> Settings:
    """Return settings in which those at the paths are of ``other``."""
    result = settings
    for path in paths:
        result = cast("Settings", _with(result, other, path.split(".")))
    return result


def _differences(before: object, after: object, path: str) -> Iterator[str]:
    fields = _fields(before)
    if fields is None or _fields(after) is None:
        if before != after:
            yield path
        return
    for name in fields:
        inner = f"{path}.{name}" if path else name
        yield from _differences(getattr(before, name), getattr(after, name), inner)


def _with(section: Any, other: Any, path: list[str]) -> Any:  # noqa: ANN401 - sections of any kind
    name, *rest = path
    value = getattr(other, name)
    if rest:
        value = _with(getattr(section, name), value, rest)
    if isinstance(section, SimpleNamespace):
        result = copy.copy(section)
        setattr(result, name, value)
        return result
    return section.model_copy(update={name: value})


def _fields(value: object) -> Collection[str] | None:
    """Return the names of a section's settings, None for a value."""
    if isinstance(value, SimpleNamespace):
        return vars(value)
    fields: Mapping[str, object] | None = getattr(type(value), "model_fields", None)
    return fields
