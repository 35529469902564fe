"""The part of the chart's schema that repeats the settings of programs.

``exporter.config``, ``checks.config``, ``detector.config`` and ``reliability.config`` of the chart
are their settings as they are. With their schema in values.schema.json, Helm refuses a mistake
there before anything is installed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel, JsonValue

# What an editor would show; Helm does not.
_PROSE = ("title", "description", "default")
_WIDTH = 100
# What is needed here the chart adds where a user leaves it out.
_COMPLETED = ("reliability.PrometheusConfig",)


def chart_schema(text: str, programs: Mapping[str, type[BaseModel]]) -> str:
    """Return values.schema.json with the settings of the programs as they are now.

    Parameters
    ----------
    text
        The file as it is; what is written by hand is kept.
    programs
        The settings by program; ``#/definitions/<program>`` will be their schema.
    """
    schema = json.loads(text)
    by_hand = schema["definitions"].items()
    kept = {name: definition for name, definition in by_hand if name.split(".")[0] not in programs}
    schema["definitions"] = kept
    for program, model in programs.items():
        settings = model.model_json_schema()
        sections = settings.pop("$defs")
        kept[program] = _plain(settings, program)
        for name, section in sections.items():
            kept[f"{program}.{name}"] = _plain(section, program)
    for name in _COMPLETED:
        del kept[name]["required"]
    return f"{_dump(schema)}\n"


def _plain(schema: JsonValue, program: str) -> JsonValue:
    """Return a schema in words of draft 7, the newest that every Helm 3 knows."""
    if isinstance(schema, list):
        return [_plain(item, program) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {}
    for key, value in schema.items():
        if key == "properties":
            # The keys within are names, not words of the schema.
            plain[key] = {name: _plain(subschema, program) for name, subschema in value.items()}
        elif key == "$ref":
            plain[key] = value.replace("#/$defs/", f"#/definitions/{program}.")
        elif key == "prefixItems":
            plain["items"] = _plain(value, program)
        elif key not in _PROSE:
            plain[key] = _plain(value, program)
    return plain


def _dump(value: JsonValue, indent: int = 0, before: str = "") -> str:
    """Return JSON with what fits on a line, with what stands before and after it, on one line."""
    flat = before + json.dumps(value)
    if indent + len(flat) < _WIDTH or not isinstance(value, dict | list):
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [_dump(member, indent + 2, f"{json.dumps(key)}: ") for key, member in value.items()]
        left, right = "{", "}"
    else:
        parts = [_dump(item, indent + 2) for item in value]
        left, right = "[", "]"
    lines = ",\n".join(pad + part for part in parts)
    return f"{before}{left}\n{lines}\n{' ' * indent}{right}"
