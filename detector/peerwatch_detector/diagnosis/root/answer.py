"""The root of a failure for a terminal and for programs: what to do first, then why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from peerwatch_common.logs import one_line
from peerwatch_detector.diagnosis.root.algorithm.algorithm import Root
from peerwatch_detector.diagnosis.root.algorithm.considered import Considered
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, names
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation
from peerwatch_detector.diagnosis.root.text import shown, summary_text, would_change

# What a person reads of thousands of lines, a third of a terminal of 24; the JSON has more, some
# 100 kB with the longest texts.
_MOST_LINES = 8
_MOST_IN_JSON = 200
# A recorded case counts from its start; Unix times are far above: 1e8 was in 1973, and is a case of
# three years.
_UNIX_FROM = 1e8


def root_json(root: Root, job: JobPlaces) -> dict[str, Any]:
    """Return the answer for programs: causes with what speaks for and against, path, checks."""
    return {
        "causes": [_cause_json(cause, root, job) for cause in root.causes],
        "considered": [
            {
                "what": each.what,
                "speaks_for": [_event_json(sign) for sign in each.speaks_for[:_MOST_IN_JSON]],
                "against": each.against,
            }
            for each in root.considered
        ],
        "path": [{"step": step.name, "result": step.result} for step in root.path],
        "checks": [
            {
                "check": run.check,
                "nodes": list(run.nodes),
                "why": run.why,
                "parts": {name: list(nodes) for name, nodes in run.parts},
            }
            for run in root.checks
        ],
        "places": {node: dict(places) for node, places in job.places.items()},
        "missing": list(root.missing),
    }


def root_text(root: Root, job: JobPlaces) -> str:
    """Return the answer for a person."""
    parts = [line for cause in root.causes for line in _cause_lines(cause, root, job)]
    if not root.causes:
        parts.append(no_cause_text(root))
    if root.considered:
        parts.append("What else was considered:")
        parts += [f"  {considered_text(each)}" for each in root.considered]
    if root.path:
        parts += ["How it was found:", *(f"  {step.name}: {step.result}" for step in root.path)]
    if root.checks:
        parts.append("What to run:")
        parts += [
            f"  peerwatch-check {run.check} on {names(run.nodes, 8)}: {run.why}"
            for run in root.checks
        ]
    if root.missing:
        parts += ["What is missing:", *(f"  {text}" for text in root.missing)]
    return "\n".join(one_line(part) for part in parts)


def considered_text(each: Considered) -> str:
    """Return in a sentence what speaks for an answer that is not given, and why it is not."""
    signs = list(dict.fromkeys(shown(sign) for sign in each.speaks_for))
    return f"{each.what}: {names(signs, 3)}; not named, because {each.against}."


def no_cause_text(root: Root) -> str:
    """Return what is to be said where no cause is named."""
    if root.episode.begun is None:
        return "Nothing is wrong with the job, as far as it was observed."
    if root.works:
        return "The job goes on, and nothing that was observed names a cause."
    return "The job failed or stands, and nothing that was observed says why."


def _cause_json(cause: Cause, root: Root, job: JobPlaces) -> dict[str, Any]:
    return {
        "summary": summary_text(cause, root, job),
        "nodes": list(cause.nodes),
        "place": cause.place,
        "symptom": cause.symptom,
        "domain": cause.domain,
        "duration": cause.main.rule.duration,
        "action": cause.action,
        "confidence": cause.confidence,
        "time_seconds": cause.time if cause.time or not _is_undated(cause.main) else None,
        "rule": cause.main.rule.name,
        "source": cause.main.rule.source,
        "speaks_for": [_event_json(each) for each in cause.speaks_for[:_MOST_IN_JSON]],
        "against": list(cause.against),
        "would_change": would_change(cause),
    }


def _event_json(each: Observation) -> dict[str, object]:
    return each.evidence.to_json() | ({"time": None} if _is_undated(each) else {})


def _is_undated(each: Observation) -> bool:
    """Whether it is a setting that differs, nobody knows since when: it has no time."""
    return each.evidence.kind == "config" and each.time == 0.0


def _cause_lines(cause: Cause, root: Root, job: JobPlaces) -> list[str]:
    rule = cause.main.rule
    lines = [
        summary_text(cause, root, job),
        f"  {cause.symptom}, {cause.domain}, {rule.duration}, {cause.confidence}, "
        f"action {cause.action}",
        f"  rule {rule.name}: {rule.source}",
    ]
    shown = cause.speaks_for[:_MOST_LINES]
    lines += [f"  for: {_observed(each)}" for each in shown]
    if len(cause.speaks_for) > len(shown):
        lines.append(f"  for: {len(cause.speaks_for) - len(shown)} more")
    lines += [f"  against: {text}" for text in cause.against]
    return [*lines, f"  would change it: {would_change(cause)}", ""]


def _observed(each: Observation) -> str:
    evidence = each.evidence
    about = [evidence.node]
    about += [f"{name} {value}" for name, value in _details(each) if value not in ("", None)]
    text = f": {evidence.text}" if evidence.text else ""
    where = ", ".join(part for part in about if part)
    when = "from before" if _is_undated(each) else _when(each.time)
    return f"{when} {evidence.kind} {evidence.name} ({where}){text}"


def _details(each: Observation) -> list[tuple[str, object]]:
    evidence = each.evidence
    return [
        ("GPU", evidence.gpu),
        ("device", evidence.device),
        ("rank", evidence.rank),
        ("about rank", evidence.peer_rank),
        ("about", evidence.peer_node or evidence.peer_address),
    ]


def _when(time: float) -> str:
    if time < _UNIX_FROM:
        return f"{time:.1f} s"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
