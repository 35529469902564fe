"""The page of every setting of both programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tables import cell

from peerwatch_detector.config import DetectorConfig
from peerwatch_exporter.settings.config import ExporterConfig


def configuration_page() -> str:
    """Return docs/configuration.md: every setting of both programs."""
    lines = [
        "# Configuration",
        "",
        "Generated from the two `config.py`; edit it there. Unknown keys, wrong types and",
        "impossible values are refused at start, all at once, each with its path.",
    ]
    for title, model in (("Exporter", ExporterConfig), ("Detector", DetectorConfig)):
        lines += ["", f"## {title}", "", "| setting | default | limits | meaning |"]
        lines += ["|---|---|---|---|", *_rows(model, "")]
    return "\n".join(lines) + "\n"


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        section = _section(field)
        if section is not None:
            rows += _rows(section, f"{prefix}{name}.")
            continue
        rows.append(
            f"| `{prefix}{name}` | {_default(field)} | {_limits(field)} "
            f"| {cell(field.description or '')} |"
        )
    return rows


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "-"
    if isinstance(value, Path):
        value = str(value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _limits(field: FieldInfo) -> str:
    words = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, key):g}"
        for limit in field.metadata
        for key, sign in words.items()
        if getattr(limit, key, None) is not None
    ]
    choices = [str(one) for one in get_args(field.annotation) if isinstance(one, str)]
    return ", ".join(limits) or " or ".join(f"`{one}`" for one in choices) or "-"
