"""Makes records of what a check said, and of what it said when it was repeated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from peerwatch_checks import __version__
from peerwatch_checks.check import Outcome
from peerwatch_common.check_results.record import (
    MAX_MESSAGE,
    MAX_NAME,
    MAX_VERSIONS,
    Record,
)
from peerwatch_common.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_checks.check import Check
    from peerwatch_checks.run.supervisor import Finished

# Where a check speaks twice of one device, the worse holds.
_WORSE = ("pass", "skipped", "warn", "error", "fail")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is the same in all records of a run.

    Parameters
    ----------
    node, mode, job_id
        As in the record.
    hardware
        The node's models of GPU and CPU, which stand among the versions of every record.
    """

    node: str
    mode: str = "manual"
    job_id: str = ""
    hardware: Mapping[str, str] = field(default_factory=dict)


def by_device(finished: Finished) -> dict[str, Outcome]:
    """Return one outcome for each device; there is one at least."""
    found: dict[str, Outcome] = {}
    said = list(map(_bounded, finished.outcomes))
    if finished.problem:
        said.append(Outcome("error", finished.problem))
    elif not said:
        said.append(Outcome("error", "It ended without saying anything."))
    for outcome in said:
        known = found.get(outcome.device)
        if known is None or _WORSE.index(known.status) < _WORSE.index(outcome.status):
            found[outcome.device] = outcome
    return found


def repeated(first: Mapping[str, Outcome], second: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return what holds of two attempts: a failure counts if it was repeated.

    One that was not is a warning, for something differed; what could not be tested the second
    time is unknown. A check that names only what is bad says of all the rest, without a device,
    that it passed.
    """
    found = dict(second)
    rest_passed = "" in second and second[""].status == "pass"
    for device, before in first.items():
        after = second.get(device)
        if after is None and rest_passed:
            after = Outcome("pass", "", device, severity=before.severity)
        if before.status == "fail" and (after is None or after.status in {"error", "skipped"}):
            why = "it was not tested again" if after is None else after.message
            text = f"It failed, and could not be repeated: {why} At first: {before.message}"
            found[device] = replace(before, status="error", message=text)
        elif before.status == "fail" and after is not None and after.status != "fail":
            text = f"It failed once and passed when it was repeated. At first: {before.message}"
            found[device] = replace(after, status="warn", message=text)
    for device, after in second.items():
        before_it = first.get(device)
        if after.status == "fail" and (before_it is None or before_it.status != "fail"):
            text = f"It failed when it was repeated, and not at first: {after.message}"
            found[device] = replace(after, status="warn", message=text)
    return found


def once(first: Mapping[str, Outcome], reason: str) -> dict[str, Outcome]:
    """Return what holds of one attempt that could not be repeated: nothing has failed yet."""
    return {
        device: replace(
            outcome,
            status="warn",
            message=f"It failed once and was not repeated: {reason}. {outcome.message}",
        )
        if outcome.status == "fail"
        else outcome
        for device, outcome in first.items()
    }


def records(
    check: Check,
    outcomes: Mapping[str, Outcome],
    about: Circumstances,
    *,
    started: float,
    seconds: float,
    attempts: int,
) -> tuple[Record, ...]:
    """Return the records of a check.

    Parameters
    ----------
    check
        The check.
    outcomes
        What holds, by device.
    about
        The run.
    started
        When the first attempt began, as Unix time.
    seconds
        How long all attempts took.
    attempts
        How many there were; 0: the check did not run.
    """
    return tuple(
        Record(
            check=check.name,
            scope=check.scope,
            device=device,
            status=outcome.status,
            severity=outcome.severity or check.severity,
            message=one_line(outcome.message)[:MAX_MESSAGE],
            started=started,
            duration_seconds=round(seconds, 3),
            node=about.node,
            value=outcome.value,
            unit=outcome.unit,
            expected=outcome.expected,
            value_ratio=_ratio(outcome),
            attempts=attempts,
            mode=about.mode,
            job_id=about.job_id,
            versions={"peerwatch": __version__, **about.hardware, **outcome.versions},
        )
        for device, outcome in outcomes.items()
    )


def _ratio(outcome: Outcome) -> float | None:
    if outcome.value is None or not outcome.expected:
        return None
    ratio = outcome.value / outcome.expected
    return ratio if math.isfinite(ratio) else None


def _is_sound(value: object) -> bool:
    """Return whether a check may give this for a number; it may give anything."""
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def _bounded(outcome: Outcome) -> Outcome:
    """Return an outcome that fits into a record; what does not is the check's mistake."""
    if not (_is_sound(outcome.value) and _is_sound(outcome.expected)):
        text = f"It measured {outcome.value!r} and expected {outcome.expected!r}: no numbers."
        return Outcome("error", text, outcome.device[:MAX_NAME])
    versions = dict(list(outcome.versions.items())[: MAX_VERSIONS - 3])
    return replace(
        outcome,
        device=one_line(outcome.device)[:MAX_NAME],
        unit=outcome.unit[:MAX_NAME],
        versions={str(name): str(value)[:MAX_NAME] for name, value in versions.items()},
    )
