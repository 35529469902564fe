"""Series as evidence: what exporters and detectors publish about a job and its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from peerwatch_detector.diagnosis.by_rank import number_of
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.root.evidence.evidence import (
    LOG_CLASSES,
    MOST_EVENTS,
    Evidence,
    in_order,
)
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live.pings import ping_evidence, ping_table_of
from peerwatch_detector.frame import Series

# A job that has not finished a step for so long stands: MegaScale alarms after tens of seconds, and
# four scrapes of 15 s have seen nothing.
_STALLED_SECONDS = 60.0
# Ranks end a step at different moments, and write lines about it before and after. Chosen: as long
# as a step may take before the job counts as stalled.
_STEP_SECONDS = 60.0
# How long before the end of its window an increase may have begun: the queries ask for a minute's.
_INCREASE_SECONDS = 60.0
_PROCESS = {"rank_exited": "exited", "rank_zombie": "zombie", "rank_stopped": "stopped"}

# Lines that accuse the node that they come from.
_OF_A_HOST = frozenset("HN")

Labels = Mapping[str, str]


def job_places(samples: Samples) -> JobPlaces:
    """Return the nodes, ranks and places of a job, as the series say.

    Parameters
    ----------
    samples
        Answers to ``QUERIES``; what nobody publishes is an empty sequence.
    """
    # A job that started again elsewhere leaves each rank on two nodes for a while: it runs where it
    # was seen last.
    last_seen = sorted(_rows(samples, "ranks"), key=lambda row: (row[1], row[0].get("node", "")))
    ranks = {
        rank: labels.get("node", "")
        for labels, _ in last_seen
        if (rank := _rank(labels)) is not None
    }
    places = {
        labels["node"]: {
            level: labels[f"topology_{level}"]
            for level in ("rack", "leaf", "pod")
            if labels.get(f"topology_{level}")
        }
        for labels, _ in _rows(samples, "places")
        if labels.get("node")
    }
    nodes = {labels.get("node", "") for labels, _ in _rows(samples, "ranks")} - {""}
    addresses = {
        labels["address"]: labels["node"]
        for labels, _ in _rows(samples, "addresses")
        if labels.get("address") and labels.get("node")
    }
    return JobPlaces(tuple(sorted(nodes)), ranks, {n: p for n, p in places.items() if p}, addresses)


def evidence_of(samples: Samples, now: float, job_id: str) -> tuple[Evidence, ...]:
    """Return what the series say, in order of time; at most ``MOST_EVENTS``, the last ones.

    Parameters
    ----------
    samples
        Answers to ``QUERIES``.
    now
        Unix time at which they were evaluated.
    job_id
        The job.
    """
    found: list[Evidence] = []
    for name, build in _BUILDERS.items():
        found += (each for row in _rows(samples, name) for each in build(*row))
    found += _findings(samples)
    found += _logs(samples, job_id, survived_until(samples, now))
    found += _exits(samples, now, job_id)
    found += _verdicts(samples, job_id)
    found += ping_evidence(ping_table_of(samples), now)
    last = _last_step(samples)
    if math.isfinite(last) and now - last > _STALLED_SECONDS:
        found.append(Evidence(time=last, kind="step", name="stalled", job_id=job_id))
    return in_order(found)[-MOST_EVENTS:]


def survived_until(samples: Samples, now: float) -> float:
    """Return until when whatever a rank wrote did not end the job: it made steps after it.

    Returns
    -------
    float
        Unix time: ``now`` of a job that makes steps, some time before the last step of one that
        stands; minus infinity where nothing is known of its steps.
    """
    last = _last_step(samples)
    return now if now - last <= _STALLED_SECONDS else last - _STEP_SECONDS


def _last_step(samples: Samples) -> float:
    return max((value for _, value in _rows(samples, "step")), default=-math.inf)


def _rows(samples: Samples, name: str) -> Iterator[tuple[Labels, float]]:
    for series in samples.get(name, ()):
        value = _value(series)
        if math.isfinite(value):
            yield series.labels, value


def _value(series: Series) -> float:
    return float(series.values[-1]) if len(series.values) else math.nan


def _rank(labels: Labels) -> int | None:
    return number_of(labels.get("rank", ""))


def _xid(labels: Labels, value: float) -> Sequence[Evidence]:
    return [
        Evidence(
            time=value,
            kind="xid",
            name=labels.get("xid", "other"),
            node=labels.get("node", ""),
            gpu=labels.get("gpu", ""),
            class_name=labels.get("class", ""),
        )
    ]


def _sxid(labels: Labels, value: float) -> Sequence[Evidence]:
    return [
        Evidence(
            time=value,
            kind="sxid",
            name=labels.get("sxid", "other"),
            node=labels.get("node", ""),
            class_name=labels.get("severity", ""),
            device=labels.get("switch", ""),
        )
    ]


def _kernel(labels: Labels, value: float) -> Sequence[Evidence]:
    # XIDs have series of their own, with the GPU.
    if labels.get("signature", "").startswith("xid_"):
        return []
    return [
        Evidence(
            time=value,
            kind="kernel",
            name=labels.get("signature") or "other",
            node=labels.get("node", ""),
            class_name=labels.get("class", ""),
        )
    ]


def _state(
    kind: str, name: str, device: str = "", before: float = 0.0
) -> Callable[[Labels, float], Sequence[Evidence]]:
    """Return the builder of a state that began at a time."""

    def build(labels: Labels, value: float) -> Sequence[Evidence]:
        return [
            Evidence(
                time=value - before,
                kind=kind,  # type: ignore[arg-type]
                name=labels.get("check") or name,
                node=labels.get("node", ""),
                gpu=labels.get("gpu", ""),
                device=labels.get(device, "") if device else "",
                class_name="fail" if kind == "check" else "",
            )
        ]

    return build


def _named(kind: str, label: str) -> Callable[[Labels, float], Sequence[Evidence]]:
    """Return the builder of something whose name is a label and whose value is its time."""

    def build(labels: Labels, value: float) -> Sequence[Evidence]:
        return [
            Evidence(
                time=value,
                kind=kind,  # type: ignore[arg-type]
                name=labels.get(label) or "other",
                node=labels.get("node", ""),
                gpu=labels.get("gpu", ""),
                class_name="minority" if kind == "config" else "",
            )
        ]

    return build


def _traffic(labels: Labels, value: float) -> Sequence[Evidence]:
    name, node = labels.get("class", "").removeprefix("traffic_"), labels.get("node", "")
    # Of all nodes alike it says nothing about any of them.
    return [Evidence(time=value, kind="traffic", name=name if node else f"job_{name}", node=node)]


_BUILDERS: Mapping[str, Callable[[Labels, float], Sequence[Evidence]]] = {
    "xid": _xid,
    "xid_class": _xid,
    "sxid": _sxid,
    "kernel": _kernel,
    "gpu_lost": _state("gpu", "lost"),
    "link_down": _state("nic", "link_downed", "device", _INCREASE_SECONDS),
    "memory": _state("host", "edac_uncorrected", before=_INCREASE_SECONDS),
    "boot": _state("boot", "boot"),
    "check": _state("check", "other", "device"),
    "absent": _state("absent", "absent"),
    "config": _named("config", "key"),
    "changed": _named("change", "key"),
    "traffic": _traffic,
}


def _findings(samples: Samples) -> Iterator[Evidence]:
    """Yield what statistics found, with the sentence of each."""

    def whose(labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(name, "") for name in ("node", "gpu", "metric"))

    said = {
        whose(labels): labels.get("summary", "") for labels, _ in _rows(samples, "finding_text")
    }
    build = _named("finding", "metric")
    for labels, value in _rows(samples, "finding"):
        for each in build(labels, value):
            yield replace(each, text=said.get(whose(labels), ""))


def _logs(samples: Samples, job_id: str, survived: float) -> Iterator[Evidence]:
    """Yield the lines of ranks, with the peers they complain about."""
    times: dict[tuple[str, str, str, str], float] = {}
    # The first error of a rank is known exactly; of others the last time is. One that the job
    # survived says nothing about when the same came again.
    for name in ("log", "first"):
        for labels, value in _rows(samples, name):
            key = (
                labels.get("node", ""),
                labels.get("rank", ""),
                labels.get("class", ""),
                labels.get("signature", ""),
            )
            if name == "log" or value >= survived:
                times[key] = min(value, times.get(key, math.inf))
    places = job_places(samples)
    peers: dict[tuple[str, str, str], list[str]] = {}
    for labels, _ in _rows(samples, "peers"):
        whose = (labels.get("node", ""), labels.get("rank", ""), labels.get("signature", ""))
        peers.setdefault(whose, []).append(labels.get("peer", ""))
    for (node, rank, class_name, signature), time in times.items():
        if class_name not in LOG_CLASSES:
            continue
        for peer in peers.get((node, rank, signature), [""]):
            peer_rank = number_of(peer)
            yield Evidence(
                time=time,
                kind="log",
                name=signature or "other",
                node=_writer(node, _rank({"rank": rank}), class_name, places),
                class_name=class_name,
                job_id=job_id,
                rank=_rank({"rank": rank}),
                peer_rank=peer_rank,
                peer_address=peer if peer_rank is None else "",
            )


def _writer(reader: str, rank: int | None, class_name: str, job: JobPlaces) -> str:
    """Return the node of the rank that wrote a line; empty if that is not known.

    Below ``srun`` one node has the file of the whole job, and its exporter counts the lines of all
    ranks. A rank runs where it runs; a host's error that names no rank may be any host's.
    """
    if rank is not None:
        return job.ranks.get(rank, reader)
    return "" if class_name in _OF_A_HOST and len(job.nodes) > 1 else reader


def _exits(samples: Samples, now: float, job_id: str) -> Iterator[Evidence]:
    """Yield the ends of processes, with what they ended by."""
    since = {
        (labels.get("node", ""), labels.get("rank", "")): now - value
        for labels, value in _rows(samples, "halted")
    }
    for labels, _ in _rows(samples, "exits"):
        signal, code = labels.get("signal", ""), labels.get("code", "")
        yield Evidence(
            time=since.get((labels.get("node", ""), labels.get("rank", "")), now),
            kind="process",
            name="killed" if signal else "exited",
            node=labels.get("node", ""),
            job_id=job_id,
            rank=_rank(labels),
            value=float(code) if code.isascii() and code.isdigit() else None,
            text=labels.get("error", "") or signal,
        )


def _verdicts(samples: Samples, job_id: str) -> Iterator[Evidence]:
    """Yield verdicts about collectives and processes, from when they were findings on."""
    begun = {
        (labels.get("node", ""), labels.get("metric", "")): value
        for labels, value in _rows(samples, "named")
    }
    for labels, value in _rows(samples, "verdict"):
        node, class_name = labels.get("node", ""), labels.get("class", "other")
        yield Evidence(
            time=begun.get((node, class_name), value),
            kind="process" if class_name in _PROCESS else "collective",
            name=_PROCESS.get(class_name, class_name),
            node=node,
            class_name=labels.get("confidence", ""),
            job_id=job_id,
            rank=_rank(labels),
        )
