"""The document of every setting of both programs: the common ones first, then all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tables import cell

from peerwatch_detector.config import DetectorConfig
from peerwatch_exporter.settings.config import ExporterConfig

# What most installations set; at most 15, or it is no longer a place to start.
_COMMON: dict[str, tuple[type[BaseModel], tuple[str, ...]]] = {
    "exporter": (
        ExporterConfig,
        (
            "web.config_file",
            "heartbeat.directory",
            "jobs.mapping_directory",
            "collectors.disabled",
            "gpu.expected_count",
            "mean_seconds",
        ),
    ),
    "detector": (
        DetectorConfig,
        (
            "prometheus.url",
            "prometheus.recorded",
            "listen.address",
            "preset",
            "continuity.threshold_seconds",
            "peers.role_label",
            "metrics.overrides",
            "replicas.enabled",
        ),
    ),
}
_HEAD = ("| setting | default | limits | meaning |", "|---|---|---|---|")
_Setting = tuple[str, FieldInfo]

_INTRODUCTION = """# Configuration

Both programs read one YAML file (`--config`), and both run without it: every setting has a default.
Unknown keys, wrong types and impossible values are refused at startup, all at once, each with its
path. A dot in a name is a level of nesting: `listen.port` is `listen: {port: ...}`.
`exporter/exporter.example.yaml` lists every setting of the exporter,
`detector/detector.example.yaml` is a starting point for the detector. This is generated from
the programs' settings.

## Common settings
"""
_MINDER = """
### Settings of method minder

The published method and its variants, to compare with; see
[detection.md](detection.md#the-method-minder).
"""
_SWITCHES = """
### Ablation switches

Each switches off or replaces one part of method `peerwatch`, so that an evaluation can show what
the part contributes (`evaluate --ablate`, [evaluation.md](evaluation.md)). Leave them as they are
in production.
"""


def configuration_document() -> str:
    """Return docs/configuration.md: the common settings, then every setting of both programs."""
    exporter, detector = list(_settings(ExporterConfig)), list(_settings(DetectorConfig))
    lines = [
        _INTRODUCTION,
        "| program | setting | default | meaning |",
        "|---|---|---|---|",
        *_common_rows(),
        "\n## All settings\n\n### Exporter\n",
        *_table(exporter, _is_plain),
        "\n### Detector\n",
        *_table(detector, _is_plain),
        _MINDER,
        *_table(detector, _is_minder),
        _SWITCHES,
        *_table(detector, _is_switch),
    ]
    return "\n".join(lines) + "\n"


def settings_table(sections: Mapping[str, type[BaseModel]]) -> list[str]:
    """Return a table of the settings of some sections, by the path of each section."""
    found = [each for place, model in sections.items() for each in _settings(model, f"{place}.")]
    return _table(found, lambda _name, _field: True)


def _common_rows() -> Iterator[str]:
    for program, (model, names) in _COMMON.items():
        known = dict(_settings(model))
        for name in names:
            field = known[name]
            meaning = cell(field.description or "")
            yield f"| {program} | `{name}` | {_default(field)} | {meaning} |"


def _table(settings: list[_Setting], chosen: Callable[[str, FieldInfo], bool]) -> list[str]:
    rows = [
        f"| `{name}` | {_default(field)} | {_limits(field)} | {cell(field.description or '')} |"
        for name, field in settings
        if chosen(name, field)
    ]
    return [*_HEAD, *rows]


def _is_plain(name: str, field: FieldInfo) -> bool:
    return not (_is_minder(name, field) or _is_switch(name, field))


def _is_minder(name: str, _field: FieldInfo) -> bool:
    return name.startswith("minder.")


def _is_switch(name: str, field: FieldInfo) -> bool:
    """Return whether a setting switches a part of method peerwatch; `scale` is one of two."""
    return name == "peerwatch.scale" or (name.startswith("peerwatch.") and field.annotation is bool)


def _settings(model: type[BaseModel], prefix: str = "") -> Iterator[_Setting]:
    """Yield path and declaration of every setting, those of sections in their place."""
    for name, field in model.model_fields.items():
        section = _section(field)
        if section is not None:
            yield from _settings(section, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


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
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, key):g}"
        for limit in field.metadata
        for key, sign in signs.items()
        if getattr(limit, key, None) is not None
    ]
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    return ", ".join(limits) or " or ".join(f"`{choice}`" for choice in choices) or "-"
