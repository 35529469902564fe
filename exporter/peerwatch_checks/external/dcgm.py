"""Reads what ``dcgmi diag -j`` prints, of DCGM 2 to 4, which name and nest it differently."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# By DCGM's error severities: monitor 1, isolate 2, unknown 3, triage 4, configuration 5, reset 6.
# Only these two say that the GPU itself cannot be used as it is.
_HIGH = {2, 6}
# Braces in what is printed before the JSON. Chosen: far more than warnings there have.
_MOST_TRIES = 50


class DiagError(ValueError):
    """The answer holds no results; the message says what it holds."""


@dataclass(frozen=True, slots=True)
class DiagResult:
    """One test on one device.

    Parameters
    ----------
    test
        Its name, such as ``memory``.
    device
        ``gpu 3``, ``cpu 0``; empty for what is not of one device.
    status
        ``pass``, ``fail``, ``warn`` or ``skip``, in small letters; others as DCGM says them.
    text
        Its warnings.
    high
        Whether a failure means that the device cannot be used.
    """

    test: str
    device: str
    status: str
    text: str
    high: bool


def read_diag(text: str) -> list[DiagResult]:
    """Return the results in an answer; text before and after the JSON is passed over.

    Raises
    ------
    DiagError
        If there is no JSON, or it tells of an error of the diagnostic itself, or has no test.
    """
    root = _json(text)
    for key in ("runtime_error", "error"):
        error = next((str(each[key]) for each in _objects(root) if each.get(key)), "")
        if error:
            raise DiagError(error)
    found = [
        result
        for each in _objects(root)
        for category in _listed(each, "test_categories")
        for test in _listed(category, "tests")
        for result in _results(test)
    ]
    if not found:
        raise DiagError("The answer holds no test.")
    return found


def _json(text: str) -> object:
    start = -1
    for _ in range(_MOST_TRIES):
        start = text.find("{", start + 1)
        if start < 0:
            break
        try:
            value, _end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        return value
    raise DiagError("The answer holds no JSON.")


def _objects(value: object, depth: int = 3) -> Iterator[Mapping[str, Any]]:
    """Yield an object and those below it; the results lie under a root of changing name."""
    if isinstance(value, dict):
        yield value
        if depth:
            for each in value.values():
                yield from _objects(each, depth - 1)


def _listed(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _results(test: Mapping[str, Any]) -> Iterator[DiagResult]:
    name = str(test.get("name", "")).strip() or "unnamed"
    results = _listed(test, "results")
    summary = test.get("test_summary")
    summary = summary if isinstance(summary, dict) else {}
    # DCGM 4 fails all devices for what is another one's or nobody's own, and says what only there
    # or in the summary, which may repeat what is a device's own.
    own = [each for result in results for each in _warnings(result)]
    general = [each for each in _warnings(summary) if each not in own]
    failed = [each for each in results if _status(each) == "fail"]
    silent = [each for each in failed if not _warnings(each)]
    for each in results:
        yield _result(name, each, (general or own) if each in silent else _warnings(each))
    # Whoever fails and does not say why has said the summary's.
    if _status(summary) == "fail" and not silent and (general or not failed):
        yield _result(name, summary, general)


def _result(name: str, result: Mapping[str, Any], warnings: list[object]) -> DiagResult:
    texts, severities = [], set[int]()
    for each in warnings:
        if isinstance(each, dict):
            texts.append(str(each.get("warning", each.get("text", ""))))
            severity = each.get("error_severity")
            severities |= {severity} if isinstance(severity, int) else set()
        else:
            texts.append(str(each))
    return DiagResult(
        test=name,
        device=_device(result),
        status=_status(result),
        text=" ".join(" ".join(text.split()) for text in texts if text)[:500],
        # Without severities (DCGM 2 and 3.1) nobody says that it is not.
        high=not severities or bool(severities & _HIGH),
    )


def _status(result: Mapping[str, Any]) -> str:
    return str(result.get("status", "")).strip().lower()


def _warnings(result: Mapping[str, Any]) -> list[object]:
    warnings = result.get("warnings") or result.get("warning") or []
    return warnings if isinstance(warnings, list) else [warnings]


def _device(result: Mapping[str, Any]) -> str:
    for key in ("gpu_id", "gpu_ids"):
        if str(result.get(key, "")).strip():
            return f"gpu {str(result[key]).strip()}"
    if "entity_id" in result:
        return f"{str(result.get('entity_group', 'device')).lower()} {result['entity_id']}"
    return ""
