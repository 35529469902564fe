"""What each part of a method brings: the same method with one part changed at a time.

Those of method peerwatch are read from the configuration's schema, so that a new switch is a new
row: every yes or no of the section ``peerwatch`` turned round, every choice replaced by each of
its others, and the numbers of which 0 means off. Those of method minder are the variants and the
baseline of the paper's own evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args, get_origin

from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.run import variant
from peerwatch_detector.config import DetectorConfig

_SECTION = "peerwatch"
# Settings that 0 switches off, with what is off then.
_OFF_AT_ZERO = {
    "similarity.baseline_seconds": "baseline",
    f"{_SECTION}.collapsed_share": "collapse rule",
}
# Switches of other sections.
_SWITCHES = {"absent.enabled": "absent nodes"}
# What ``method:variant`` changes; several are joined by "+".
VARIANTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "minder": {
        "raw": {"minder.model": "raw"},
        "con": {"minder.join": "concatenated"},
        "int": {"minder.join": "integrated"},
        "md": {
            "minder.model": "raw",
            "minder.join": "concatenated",
            "minder.distance": "mahalanobis",
        },
        "no-continuity": {"minder.continuity": False},
        "manhattan": {"minder.distance": "manhattan"},
        "chebyshev": {"minder.distance": "chebyshev"},
    }
}


def method_config(config: DetectorConfig, name: str) -> DetectorConfig:
    """Return the configuration of a method, such as ``peerwatch``, or a variant, ``minder:raw``.

    Raises
    ------
    ConfigError
        If there is no such method or variant, or if variants exclude each other.
    """
    method, _, wanted = name.partition(":")
    changes: dict[str, object] = {"method": method}
    known = VARIANTS.get(method, {})
    for part in wanted.split("+") if wanted else ():
        if part not in known:
            choice = f"variants of {method} are {', '.join(known)}" if known else "it has none"
            raise ConfigError([f"method {name}: unknown variant {part!r}; {choice}."])
        for path, value in known[part].items():
            if changes.setdefault(path, value) != value:
                raise ConfigError([f"method {name}: its variants disagree on {path}."])
    return variant(config, changes)


def method_ablations(config: DetectorConfig, names: Iterable[str]) -> dict[str, DetectorConfig]:
    """Return the rows of every method asked for that has parts, else those of peerwatch."""
    methods = dict.fromkeys(name.partition(":")[0] for name in names)
    rows = {
        f"{method}:{name}": method_config(config, f"{method}:{name}")
        for method in methods
        for name in VARIANTS.get(method, {})
    }
    if not rows or _SECTION in methods:
        rows = ablations(variant(config, {"method": _SECTION})) | rows
    return rows


def ablations(config: DetectorConfig) -> dict[str, DetectorConfig]:
    """Return the configurations to compare with method peerwatch, by the name of the row.

    A change that the configuration does not make, since it is as wanted already, has no row.
    """
    section = getattr(config, _SECTION)
    found = {}
    for name, field in type(section).model_fields.items():
        now = getattr(section, name)
        words = name.replace("_", " ")
        if isinstance(now, bool):
            label = f"without {words}" if now else f"with {words}"
            found[label] = variant(config, {f"{_SECTION}.{name}": not now})
        elif get_origin(field.annotation) is Literal:
            for other in get_args(field.annotation):
                if other != now:
                    found[f"{words}: {other}"] = variant(config, {f"{_SECTION}.{name}": other})
    for path, what in _OFF_AT_ZERO.items():
        if _value(config, path):
            found[f"without {what}"] = variant(config, {path: 0})
    for path, what in _SWITCHES.items():
        if _value(config, path):
            found[f"without {what}"] = variant(config, {path: False})
    return found


def _value(config: DetectorConfig, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value
