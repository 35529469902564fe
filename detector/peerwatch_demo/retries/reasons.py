"""The reasons for which jobs fail: how often, how late, how often for good, with which words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

FILE = Path(__file__).parent / "reasons.yaml"
# Of 1,000 jobs of Philly 693 end well and 172 fail for good; 4.5 % of those that end well do so by
# a retry (Sibylla).
_PASSED, _FAILED, _BY_RETRY = 69.3, 17.2, 0.045
SAVED_BY_RETRY = _PASSED * _BY_RETRY
# Of jobs whose first attempt failed so many can succeed.
TRANSIENT_SHARE = SAVED_BY_RETRY / (SAVED_BY_RETRY + _FAILED)
# Of all that end well, in percent, one failed job of so many.
SUCCESS_POINTS = 100 * _BY_RETRY / TRANSIENT_SHARE


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    Parameters
    ----------
    name
        Of Philly.
    trials
        Its share of failed trials, 0 to 1.
    gpu_seconds
        How long a trial runs until it fails, in units of the mean over all trials.
    transient
        How likely a retry can succeed at all.
    texts, passing
        What the log ends with where the failure comes again, and where it does not.
    """

    name: str
    trials: float
    gpu_seconds: float
    transient: float
    texts: tuple[str, ...]
    passing: tuple[str, ...]


def load_reasons(path: Path = FILE) -> tuple[Reason, ...]:
    """Return the reasons, with shares that add up and transients as often as was published."""
    rows = yaml.safe_load(path.read_text())["reasons"]
    trials = sum(row["trials"] for row in rows.values())
    untold = sum(row["trials"] for row in rows.values() if "gpu_time" not in row)
    told = sum(row.get("gpu_time", 0.0) for row in rows.values())
    expected = sum(row["trials"] * row["transient"] for row in rows.values()) / trials
    scale = TRANSIENT_SHARE / expected
    found = []
    for name, row in rows.items():
        time = row.get("gpu_time", (100 - told) * row["trials"] / untold)
        found.append(
            Reason(
                name,
                row["trials"] / trials,
                (time / 100) / (row["trials"] / trials),
                min(1.0, row["transient"] * scale) if row["texts"] else 1.0,
                tuple(row["texts"]),
                tuple(row["passing"]),
            )
        )
    return tuple(found)
