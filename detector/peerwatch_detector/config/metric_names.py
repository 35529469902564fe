"""Every name of a metric that a configuration mentions exists, and is there once.

Told beside all other mistakes, so it works on what was written down, sound or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from peerwatch_detector.config.preset import PresetName, load_preset

_METHODS_NAMES = (
    ("minder", "metrics"),
    ("peerwatch", "progress_metrics"),
    ("peerwatch", "busy_metric"),
    ("peerwatch", "held_metric"),
)


def wrong_names(data: object) -> Iterator[tuple[str, str]]:
    """Yield the section and a sentence for each section with wrong names of metrics.

    Only what was written down counts: a method's defaults may name metrics that a preset lacks.

    Parameters
    ----------
    data
        The configuration as it was given to pydantic.
    """
    whole = _given(data)
    metrics = _given(whole.get("metrics"))
    extra = _names([_given(item).get("name") for item in _list(metrics.get("extra"))])
    shipped = _shipped(whole.get("preset", "peerwatch"))
    known = [*shipped, *(name for name in extra if name not in shipped)]
    wrong: dict[str, list[str]] = {"metrics": [], "minder": [], "peerwatch": []}
    enabled = _names(_list(metrics.get("enabled")))
    wrong["metrics"] += _unknown("enabled", enabled, known)
    wrong["metrics"] += _unknown("overrides", _names([*_given(metrics.get("overrides"))]), known)
    wrong["metrics"] += _twice("enabled", enabled)
    counters = _counters(whole.get("preset", "peerwatch"))
    taken = {name for name in extra if (*shipped, *counters, *extra).count(name) > 1}
    wrong["metrics"] += [f"extra: metric {name!r} exists already" for name in sorted(taken)]
    for section, key in _METHODS_NAMES:
        value = _given(whole.get(section)).get(key)
        names = _names([value] if isinstance(value, str) else _list(value))
        allowed = [*known, *counters] if key == "progress_metrics" else known
        wrong[section] += [*_unknown(key, names, allowed), *_twice(key, names)]
    for section, sentences in wrong.items():
        if sentences:
            listed = [*known, *counters] if section == "peerwatch" else known
            yield section, "; ".join(sentences) + f"; known metrics are {', '.join(listed)}"


def _shipped(preset: object) -> list[str]:
    """Return the names of a preset's metrics; those of all if there is no such preset."""
    return list(
        dict.fromkeys(m.name for name in _chosen(preset) for m in load_preset(name).metrics)
    )


def _counters(preset: object) -> list[str]:
    """Return the names of a preset's counters of progress, likewise."""
    return list(
        dict.fromkeys(m.name for name in _chosen(preset) for m in load_preset(name).progress)
    )


def _chosen(preset: object) -> Sequence[PresetName]:
    there: tuple[PresetName, ...] = get_args(PresetName)
    return [name for name in there if name == preset] or there


def _unknown(where: str, names: list[str], known: list[str]) -> list[str]:
    return [f"{where}: unknown metric {name!r}" for name in names if name not in known]


def _twice(where: str, names: list[str]) -> list[str]:
    return [
        f"{where}: {name!r} is there twice"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]


def _given(section: object) -> Mapping[Any, Any]:
    """Return what was written down of a section; nothing if it is none."""
    if isinstance(section, BaseModel):
        return {name: getattr(section, name) for name in section.model_fields_set}
    return section if isinstance(section, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _names(values: list[Any]) -> list[str]:
    # What is no text is told by pydantic.
    return [value for value in values if isinstance(value, str)]
