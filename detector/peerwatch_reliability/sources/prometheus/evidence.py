"""What was observed around the ends of attempts: one query for each minute in which some ended.

Everything is asked for once, at 5 minutes after the minute's end: a query over 16 minutes reaches
10 minutes back from its begin. What has a time of its own, such as an XID, is compared by that.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, get_args

from peerwatch_common.health_conditions import XID_CLASSES, severity_of
from peerwatch_common.promql import in_one, selected
from peerwatch_reliability.accounting.attribution import AFTER_SECONDS, BEFORE_SECONDS
from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import Evidence, EvidenceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_common.check_results.record import Severity
    from peerwatch_reliability.sources.prometheus.server import Series, Server

_MINUTE = 60.0
_RANGE = BEFORE_SECONDS + AFTER_SECONDS + _MINUTE

_KINDS: Mapping[str, EvidenceKind] = {each: each for each in get_args(EvidenceKind)}
# By the class of a log's signature: of a node, a network, another rank, a storage, a user. What
# is left out (platform, noise) says nothing of a cause.
_LOG_NAMES = {"H": "gpu", "N": "network_link", "S": "filesystem", "U": "user", "D": "nccl_timeout"}


class Observed(NamedTuple):
    """What Prometheus knows of the ends of attempts.

    Parameters
    ----------
    by_minute
        Evidence by the minute of the ends that it was asked for.
    checkpoints
        Unix time of the last complete checkpoint of a job, by minute and job.
    stalls
        First and last time at which a job stood still, by job.
    missing
        What could not be known, a sentence each.
    unseen
        Minutes of which there is no data at all.
    first_steps
        Unix time of the first step of attempts, as ``FirstSteps`` has it.
    """

    by_minute: Mapping[int, tuple[Evidence, ...]]
    checkpoints: Mapping[tuple[int, str], float]
    stalls: Mapping[str, list[tuple[float, float]]]
    missing: tuple[str, ...]
    unseen: frozenset[int]
    first_steps: Mapping[tuple[int, str], float] = MappingProxyType({})


NOTHING_OBSERVED = Observed({}, {}, {}, (), frozenset())


def minute_of(time: float) -> int:
    """Return the minute, since 1970, in which an attempt ended."""
    return math.ceil(time / _MINUTE)


def evidence_query(selector: str) -> str:
    """Return the query for all that can be observed; what each series is says its label kind."""
    window = f"[{_RANGE:.0f}s]"

    def series(name: str, *matchers: str) -> str:
        return selected(name, selector, *matchers)

    failed = {
        # In a test of several nodes the first one also says what is wrong with others: the node
        # that it names has failed, not the one that says so.
        "own": series("peerwatch_check_status", 'scope!~"pair|multi"'),
        "of_several": series("peerwatch_check_status", 'scope=~"pair|multi",device=""'),
        "others": series("peerwatch_check_status", 'scope=~"pair|multi",device!=""'),
    }
    # An error of the check itself is a higher number than a failure.
    failed = {
        name: f"max_over_time(({each} == 2)[{_RANGE:.0f}s:1m])" for name, each in failed.items()
    }
    others = f'label_replace({failed["others"]}, "node", "$1", "device", "(.+)")'
    parts = {
        "check": "max by (node, check, severity) "
        f"({failed['own']} or {failed['of_several']} or {others})",
        "xid": "max by (node, xid, class) (last_over_time("
        + series("gpu_xid_class_last_timestamp_seconds")
        + f"{window}))",
        "finding": "max by (job_id, node, metric) (max_over_time("
        + series("peerwatch_finding")
        + f"{window})) == 1",
        "diagnosis": "max by (job_id, node, class, domain, confidence) (max_over_time("
        + series("peerwatch_diagnosis", 'confidence=~"sure|likely"')
        + f"{window})) == 1",
        "log": "max by (job_id, node, class, signature) (last_over_time("
        + series("log_event_last_timestamp_seconds", 'class=~"H|N|S|U|D"')
        + f"{window}))",
        "checkpoint": "max by (job_id) (last_over_time("
        + series("rank_checkpoint_last_timestamp_seconds")
        + f"{window}))",
        "stall": "max by (job_id) (max_over_time("
        + series("ALERTS_FOR_STATE", 'alertname=~"PeerwatchJobStalled|PeerwatchRdmaStoppedJob"')
        + f"{window}))",
        "seen": f"count(last_over_time({series('exporter_build_info')}{window}))",
    }
    return in_one("kind", parts)


def observed(server: Server, ends: Iterable[float]) -> Observed:
    """Return what Prometheus knows of the ends of attempts, in Unix seconds."""
    minutes = sorted({minute_of(each) for each in ends})
    query = evidence_query(server.config.selector)
    answers = server.at_all((query, minute * _MINUTE + AFTER_SECONDS) for minute in minutes)
    by_minute: dict[int, tuple[Evidence, ...]] = {}
    checkpoints: dict[tuple[int, str], float] = {}
    stalls: dict[str, list[tuple[float, float]]] = {}
    unseen, errors = set(), []
    for minute, answer in zip(minutes, answers, strict=True):
        if isinstance(answer, SourceError):
            errors.append(str(answer))
            unseen.add(minute)
            continue
        found = []
        if not any(series.labels.get("kind") == "seen" for series in answer):
            unseen.add(minute)
        for series in answer:
            kind, job_id = series.labels.get("kind"), series.labels.get("job_id", "")
            value = series.samples[0][1]
            if kind == "checkpoint":
                checkpoints[minute, job_id] = value
            elif kind == "stall":
                stalls.setdefault(job_id, []).append((value, minute * _MINUTE))
            elif kind != "seen":
                found += _evidence(series, minute * _MINUTE)
        by_minute[minute] = tuple(found)
    missing = []
    if errors:
        missing.append(f"{len(errors)} queries about ends were not answered ({errors[0]})")
    if unseen:
        missing.append(
            f"of {len(unseen)} of {len(minutes)} minutes in which attempts ended there is no data "
            "of any exporter: their causes are the scheduler's word alone"
        )
    return Observed(by_minute, checkpoints, stalls, tuple(missing), frozenset(unseen))


def _evidence(series: Series, minute: float) -> list[Evidence]:
    labels, value = series.labels, series.samples[0][1]
    kind = _KINDS.get(labels.get("kind", ""))
    if kind is None:
        return []
    node, job_id = labels.get("node", ""), labels.get("job_id", "")
    first, last = minute - _MINUTE - BEFORE_SECONDS, minute + AFTER_SECONDS
    severity: Severity = "high"
    if kind == "check":
        name, severity = labels.get("check", ""), _severity(labels.get("severity") == "high")
    elif kind == "xid":
        name, severity = labels.get("xid", ""), XID_CLASSES.get(labels.get("class", ""), "low")
        first = last = value
    elif kind == "finding":
        name, severity = labels.get("metric", ""), severity_of("slow_with_peers")
    elif kind == "diagnosis":
        if labels.get("domain") in {"none", "unknown"}:
            return []
        of_user = "user_" if labels.get("domain") == "user" else ""
        name, severity = (
            of_user + labels.get("class", ""),
            _severity(labels.get("confidence") == "sure"),
        )
    else:
        of_class = labels.get("class", "")
        # The class says whose it is; the signature says more where it names a part.
        name = _LOG_NAMES.get(of_class, "")
        if of_class in {"H", "N"}:
            name = f"{labels.get('signature', '')}_{name}"
        first = last = value
    return [Evidence(kind, node, name, severity, first, last, job_id)]


def _severity(is_high: bool) -> Severity:
    return "high" if is_high else "low"
