"""Checks settings and reports every mistake in them at once, each as a sentence with its path."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_common.logs import one_line
from peerwatch_common.settings.secrets import is_secret, shown, without_logins

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Settings = TypeVar("Settings", bound=BaseModel)


def with_changes(
    data: Mapping[str, Any], changes: Mapping[str, Mapping[str, object]]
) -> dict[str, Any]:
    """Return settings with those of the command line, by section and key, which win."""
    changed = dict(data)
    for section, values in changes.items():
        present = changed.get(section) or {}
        # A section that is no mapping is a mistake, which validation reports.
        if values and isinstance(present, dict):
            changed[section] = {**present, **values}
    return changed


def validated(model: type[Settings], data: Mapping[str, Any]) -> Settings:
    """Return settings that are sound.

    Raises
    ------
    ConfigError
        With every mistake found, each with its path.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(mistakes_of(error, model)) from error


def mistakes_of(
    error: ValidationError, model: type[BaseModel], secret: Collection[str] = ()
) -> list[str]:
    """Return a sentence for each mistake that pydantic found.

    Parameters
    ----------
    error
        What pydantic raised.
    model
        What was validated: it knows the keys there are.
    secret
        Keys below which no value is repeated.
    """
    return [mistake_of(item, model, secret) for item in error.errors(include_url=False)]


def mistake_of(item: Mapping[str, Any], model: type[BaseModel], secret: Collection[str]) -> str:
    """Return one of pydantic's errors as a sentence with its path, the value and what to do.

    It is one line, and holds no password: neither of an address nor below a key for secrets.
    """
    return one_line(_mistake(item, model, secret))


def _mistake(item: Mapping[str, Any], model: type[BaseModel], secret: Collection[str]) -> str:
    # Pydantic marks a wrong key of a mapping so; the key itself stands before it.
    location = [str(part) for part in item["loc"] if part != "[key]"]
    path = without_logins(".".join(location) or "configuration")
    if item["type"] == "extra_forbidden":
        known = sorted(_section(model, location[:-1]).model_fields)
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys are {', '.join(known)}"
        return f"{path}: unknown key {shown(location[-1])}; {hint}"
    text = str(item["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    text = without_logins(text)
    # A mistake between several keys is a sentence by itself; the whole section would be noise.
    hidden = not set(location).isdisjoint(secret) or any(map(is_secret, location))
    if hidden or item["type"] in {"value_error", "missing"}:
        return f"{path}: {text}"
    text = text[0].lower() + text[1:]
    return f"{path}: {text}, not {shown(item['input'])}"


def _section(model: type[BaseModel], location: list[str]) -> type[BaseModel]:
    """Return the section at a location; indices and keys of mappings lead to the same one."""
    section = model
    for part in location:
        field = section.model_fields.get(part)
        section = (None if field is None else _model_in(field.annotation)) or section
    return section


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
