"""What each part of method peerwatch brings: the same method with one part changed at a time.

The parts are read from the configuration's schema, so that a new switch is a new row: every yes
or no of the section ``peerwatch`` turned round, every choice replaced by each of its others, and
the numbers of which 0 means off.
"""

from __future__ import annotations

from typing import Literal, get_args, get_origin

from peerwatch_detector.backtest import variant
from peerwatch_detector.config import DetectorConfig

_SECTION = "peerwatch"
# Settings that 0 switches off, with what is off then.
_OFF_AT_ZERO = {
    "similarity.baseline_seconds": "baseline",
    f"{_SECTION}.collapsed_share": "collapse rule",
}


def ablations(config: DetectorConfig) -> dict[str, DetectorConfig]:
    """Return the configurations to compare with ``config``, by the name of the row.

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
    return found


def _value(config: DetectorConfig, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value
