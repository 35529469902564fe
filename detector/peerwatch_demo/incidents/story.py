"""Plays a mechanism: what hosts, ranks, clocks and luck make of its story, by a seed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from peerwatch_demo.incidents.hosts import Hosts, draw_hosts
from peerwatch_demo.incidents.incident import Answer, Incident
from peerwatch_demo.incidents.lines import read_line
from peerwatch_demo.incidents.losses import draw_losses
from peerwatch_demo.incidents.mechanism import LAUNCHERS, Line, Mechanism
from peerwatch_demo.incidents.observation import Observation
from peerwatch_detector.diagnosis.root.evidence.evidence import MOST_EVENTS, Evidence, in_order
from peerwatch_exporter.catalog.xid_codes import severity_of

# torch's default for NCCL is 600 s; 1800 s was it before, and many jobs set it.
_TIMEOUTS = (600, 600, 1800)
# Chosen: what comes after the last sign, as a diagnosis is made minutes later.
_TAIL_SECONDS = 300.0


def play(mechanism: Mechanism, seed: int) -> Incident:
    """Return the incident of a seed; the same seed gives the same incident."""
    random = Random(f"{mechanism.name}/{seed}")  # noqa: S311 - reproducible, no secret
    stage = _Stage.drawn(mechanism, random)
    everything = [each for line in mechanism.story for each in _played(line, stage, random)]
    possible = _possible(sorted(everything, key=lambda each: each.true_time))
    losses = draw_losses(random, stage.hosts)
    seen = [each for each in possible if losses.leaves(each.evidence)][:MOST_EVENTS]
    told = {what for each in everything for what in each.tells}
    left = {what for each in seen for what in each.tells if losses.leaves_peer(each)}
    return Incident(
        name=f"{mechanism.name}-{seed}",
        mechanism=mechanism.name,
        part=mechanism.part,
        job_id=stage.job_id,
        job=losses.of_places(stage.hosts.places()),
        seconds=max([stage.onset, *(each.true_time for each in possible)]) + _TAIL_SECONDS,
        onset_seconds=stage.onset,
        events=in_order(losses.of_evidence(each.evidence) for each in seen),
        answer=_answer(mechanism, stage.hosts, random, told, left),
        missing=losses.sources,
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    """What is drawn once for an incident."""

    hosts: Hosts
    job_id: str
    launcher: str
    onset: float
    timeout: float

    @classmethod
    def drawn(cls, mechanism: Mechanism, random: Random) -> _Stage:
        return cls(
            hosts=draw_hosts(random, mechanism.nodes, mechanism.roles),
            job_id=str(random.randrange(10_000, 9_999_999)),
            launcher=mechanism.launcher or random.choice(LAUNCHERS),
            onset=round(random.uniform(30, 120) if mechanism.start else random.uniform(900, 4000)),
            timeout=random.choice(_TIMEOUTS),
        )


def _answer(
    mechanism: Mechanism, hosts: Hosts, random: Random, told: set[str], left: set[str]
) -> Answer:
    label = mechanism.label

    def nodes(roles: tuple[str, ...]) -> frozenset[str]:
        chosen = {host for role in roles for host in hosts.select(role, random)}
        return frozenset(hosts.names[host] for host in chosen)

    return Answer(
        frozenset(label.domain),
        frozenset(label.symptom),
        nodes(label.isolate),
        nodes(label.may_isolate),
        nodes(label.named),
        # Where a mechanism has nothing that tells the host, none need be named.
        tells_host="host" in left,
        tells_domain="domain" in left or "domain" not in told,
    )


def _played(line: Line, stage: _Stage, random: Random) -> Iterator[Observation]:
    """Yield what is observed of one line of the story."""
    if line.launcher not in (None, stage.launcher) or random.random() > line.chance:
        return
    hosts = stage.hosts
    text = random.choice(line.what)
    chosen = hosts.select(line.where, random, line.of) if line.where != "job" else ()
    share = random.uniform(*line.share)
    if line.share != (1.0, 1.0) and chosen:
        least = 0 if line.share[0] == 0 else 1
        chosen = tuple(random.sample(chosen, max(least, round(share * len(chosen)))))
    if line.where == "job":
        yield _observation(line, text, None, None, stage, random)
    reading = _Reading(line, text)
    for host in chosen:
        for local in _locals(line, hosts, host, random):
            found = _observation(line, text, host, local, stage, random)
            if (read := reading.of(found, stage, random)) is not None:
                yield read


def _locals(line: Line, hosts: Hosts, host: int, random: Random) -> list[int | None]:
    """Return the GPUs, by their number on the host, that a line is about there."""
    every = list(range(hosts.gpus))
    if line.every_gpu or line.ranks == "all":
        return [*every]
    if line.second_gpu:
        return [(hosts.gpu[host] + 1) % hosts.gpus]
    if line.ranks == "some":
        return [*random.sample(every, random.randint(1, max(1, hosts.gpus // 2)))]
    if line.ranks == "one":
        return [random.choice(every)]
    if line.ranks == "first":
        return [0]
    return [hosts.gpu[host] if line.ranks == "gpu" or line.kind in ("xid", "gpu") else None]


def _observation(
    line: Line, text: str, host: int | None, local: int | None, stage: _Stage, random: Random
) -> Observation:
    """Return what is observed of one host, or one rank of it, before lines of logs are read."""
    assert line.kind is not None, "a fan-out was not inserted"
    hosts = stage.hosts
    base = stage.onset + (stage.timeout if line.after == "timeout" else 0.0)
    true_time = base + random.uniform(*line.at)
    skew = hosts.skews[host] if host is not None else 0.0
    rank = None
    if line.ranks is not None and host is not None and local is not None:
        rank = host * hosts.gpus + local
    evidence = Evidence(
        time=round(true_time + skew, 3),
        kind=line.kind,
        name=text[:100],
        node=hosts.names[host] if host is not None else "",
        class_name=line.event_class,
        job_id=line.job_id or ("" if line.kind in _OF_NODES else stage.job_id),
        rank=rank,
        gpu=str(local) if local is not None and line.kind in _OF_GPUS else "",
        device=f"mlx5_{local or 0}" if line.kind == "nic" else "",
        count=random.randint(*line.repeat),
        value=line.value,
        text=line.text,
    )
    if line.kind == "process":
        evidence = _ended(evidence, line)
    return Observation(evidence, true_time, line.tells, host, local, gone=line.gone)


# About the node, whatever runs there.
_OF_NODES = frozenset({"xid", "sxid", "kernel", "gpu", "nic", "host", "absent", "config", "boot"})
_OF_GPUS = frozenset({"xid", "gpu", "finding", "collective"})


def _ended(evidence: Evidence, line: Line) -> Evidence:
    if line.signal:
        number = signal.Signals[line.signal]
        return replace(evidence, value=float(-number), text=line.signal)
    return replace(evidence, value=float(line.code or 0))


class _Reading:
    """Turns lines of logs into evidence; one line of a story is matched with signatures once.

    What a signature says of a line does not depend on which rank wrote it, so thousands of equal
    lines need not be matched each.
    """

    def __init__(self, line: Line, template: str) -> None:
        self._line = line
        self._template = template
        self._known: tuple[str, str] | None = None
        self._is_read = False

    def of(self, seen: Observation, stage: _Stage, random: Random) -> Observation | None:
        """Return the evidence of a line; None if nothing is observed, as no signature knows it."""
        line, hosts = self._line, stage.hosts
        host = seen.host
        assert host is not None, "lines of logs are of hosts"
        peer = hosts.peer(line.peer, host, random) if line.peer else None
        if line.peer and peer is None:
            return None
        values = _values(hosts, host, seen.local, peer, stage, random)
        if line.kind in ("xid", "sxid"):
            text = line.text.format_map(values) if line.text else ""
            severity = line.event_class
            if line.kind == "xid" and not severity:
                severity = severity_of(int(self._template), text, {})
            return seen.of(replace(seen.evidence, class_name=severity, text=text))
        if line.kind not in ("log", "kernel"):
            peer_node = hosts.names[peer] if peer is not None else ""
            return seen.of(replace(seen.evidence, peer_node=peer_node))
        text = self._template.format_map(values)
        if not self._is_read:
            self._is_read = True
            event = read_line(text, "kernel" if line.kind == "kernel" else "job")
            if event is not None:
                self._known = (event.signature.id, event.signature.event_class.value)
        if self._known is None:
            return None
        name, class_name = self._known
        said = replace(
            seen.evidence,
            name=name,
            class_name=class_name,
            text=text,
            peer_address=hosts.addresses[peer] if peer is not None else "",
            peer_node=hosts.names[peer] if peer is not None else "",
            peer_rank=None if peer is None else peer * hosts.gpus + (seen.local or 0),
        )
        return seen.of(said)


def _values(
    hosts: Hosts,
    host: int,
    local: int | None,
    peer: int | None,
    stage: _Stage,
    random: Random,
) -> dict[str, object]:
    """Return what the placeholders of a text stand for."""
    gpu = local if local is not None else hosts.gpu[host]
    bus = f"{0x18 + 0x11 * gpu:02x}"
    return {
        "host": hosts.names[host],
        "rank": host * hosts.gpus + gpu,
        "gpu": gpu,
        "bus": bus,
        "pci": f"0000:{bus}:00",
        "peer_ip": hosts.addresses[peer] if peer is not None else "",
        "port": random.randrange(32768, 60999),
        "pid": random.randrange(2000, 90000),
        "tid": random.randrange(2000, 90000),
        "seq": 41_227,
        "timeout_ms": int(stage.timeout * 1000),
        "step": 12_500,
        "job": stage.job_id,
    }


def _possible(in_time: list[Observation]) -> list[Observation]:
    """Leave out what cannot be: a rank ends once and writes nothing later, nor does a gone host."""
    ended: set[tuple[int, int]] = set()
    gone: dict[int, float] = {}
    for each in in_time:
        if each.gone and each.host is not None:
            # Scrapes miss a host some seconds after it went.
            gone.setdefault(each.host, each.true_time - 5.0)
    left = []
    for each in in_time:
        kind, host = each.evidence.kind, each.host
        if host is not None and kind not in ("absent", "heartbeat", "boot", "check"):
            if each.true_time > gone.get(host, float("inf")):
                continue
            rank = (host, each.local) if each.local is not None else None
            if rank in ended and kind in ("process", "log", "collective"):
                continue
            if kind == "process" and rank is not None:
                ended.add(rank)
        left.append(each)
    return left
