"""The exporters' series of a job's collectives: which are asked for, and the snapshot they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from peerwatch_detector.diagnosis.activity import Activity, activity_queries, read_activity
from peerwatch_detector.diagnosis.by_rank import by_rank, number_of
from peerwatch_detector.diagnosis.collectives.members import Claims, count_claims, resolve
from peerwatch_detector.diagnosis.collectives.signature import Signature, elements, operation
from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position, Snapshot
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.frame import Series

# Seconds that nothing healthy waits: below it nothing is read, so a job that gets on costs nothing.
# From as many on the exporter says which collective is in flight.
_IN_FLIGHT_SECONDS = 5
# Where only launches are counted nobody knows what is in flight, and all is read.
_STANDS = (
    f"and on() (max(collective_in_flight_seconds{{ {{{{- job -}}}} }}) > {_IN_FLIGHT_SECONDS}"
    " or max(absent(collective_in_flight_seconds{ {{- job -}} })))"
)
QUERIES: Mapping[str, str] = {
    "sequence": f"collective_last_sequence{{ {{{{- job -}}}} }} {_STANDS}",
    "requests": f"collective_work_requests_total{{ {{{{- job -}}}} }} {_STANDS}",
    "groups": f"collective_group_info{{ {{{{- job -}}}} }} {_STANDS}",
    # One per rank: all series of a rank are scraped together.
    "read": f"timestamp(collective_source_up{{ {{{{- job -}}}} }}) {_STANDS}",
    "up": f"collective_source_up{{ {{{{- job -}}}} }} {_STANDS}",
    "age": f"collective_in_flight_seconds{{ {{{{- job -}}}} }} > {_IN_FLIGHT_SECONDS}",
    "call": "collective_in_flight_info{ {{- job -}} }",
    "ended": 'rank_process_state{ {{- job -}} ,state=~"exited|zombie"} == 1'
    ' or rank_exit_info{ {{- job -}} ,error!=""}',
    "stopped": 'rank_process_state{ {{- job -}} ,state=~"stopped|traced"} == 1',
    # What a rank does beside collectives: it saves a checkpoint, or evaluates the model.
    **activity_queries(_STANDS),
}

# A target that is gone answers for five minutes more where nothing marks its end (Prometheus'
# look-back). Four scrape intervals of 15 s: up to three may be missed.
_STALE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the series say at one moment.

    Parameters
    ----------
    snapshot
        The positions.
    nodes
        The node of each rank.
    read_at
        Unix time at which each rank was read.
    ages
        By group and rank, how long ago the oldest collective in flight was launched, in seconds.
    activity
        By rank.
    accounted
        Ranks whose process has ended or is stopped: that is a fault by itself, told elsewhere.
    """

    snapshot: Snapshot
    nodes: Mapping[int, str]
    read_at: Mapping[int, float]
    ages: Mapping[tuple[str, int], float] = field(default_factory=dict)
    activity: Mapping[int, Activity] = field(default_factory=dict)
    accounted: frozenset[int] = frozenset()


def read(samples: Samples, now: float) -> Reading | None:
    """Return what the answers to ``QUERIES`` say; None while no rank waits.

    A rank that cannot be parsed, or that is no member of the group it reports, costs only itself.

    Parameters
    ----------
    samples
        The answers.
    now
        Unix time of the server.
    """
    samples = _where_read_last(samples)
    read_at, nodes = _ranks(samples, now)
    table = {
        name: {rank: place for rank, place in ranks.items() if rank in read_at}
        for name, ranks in _positions(samples).items()
    }
    if not any(table.values()):
        return None
    groups, positions = _groups(samples, table)
    ages = by_group(samples, "age", groups)
    ended = frozenset(rank for rank, *_ in by_rank(samples.get("ended", ())))
    members = frozenset[int]().union(*(group.members for group in groups.values()))
    snapshot = Snapshot(
        now,
        groups,
        _with_ages(positions, ages),
        silent=members - read_at.keys() - ended,
        dead=ended,
        moving=_elsewhere(ages, positions) - ended,
    )
    accounted = ended | {rank for rank, *_ in by_rank(samples.get("stopped", ()))}
    return Reading(snapshot, nodes, read_at, ages, read_activity(samples), frozenset(accounted))


def _where_read_last(samples: Samples) -> Samples:
    """Leave out what a rank's former node still answers for after the job started again elsewhere.

    Nothing marks the end of what a node pushed that is gone: it answers for five minutes more.
    """
    read = by_rank(samples.get("read", ()))
    newest = sorted((time, rank, labels.get("node", "")) for rank, labels, time in read)
    where = {rank: node for _, rank, node in newest}

    def is_there(series: Series) -> bool:
        node = series.labels.get("node", "")
        rank = number_of(series.labels.get("rank", ""))
        return rank is None or where.get(rank, node) == node

    return {name: [s for s in found if is_there(s)] for name, found in samples.items()}


def _ranks(samples: Samples, now: float) -> tuple[dict[int, float], dict[int, str]]:
    """Return when each rank that answers was read, and the node of each rank."""
    nodes = {rank: labels.get("node", "") for rank, labels, _ in by_rank(samples.get("up", ()))}
    up = {rank for rank, _, value in by_rank(samples.get("up", ())) if value}
    read_at: dict[int, float] = {}
    for rank, _, time in by_rank(samples.get("read", ())):
        if rank in up and now - time <= _STALE_SECONDS:
            read_at[rank] = max(time, read_at.get(rank, 0.0))
    return read_at, nodes


def _positions(samples: Samples) -> dict[str, dict[int, Position]]:
    """Return the positions by the name of the group and rank."""
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for rank, labels, value in by_rank(samples.get("sequence", ())):
        states = counts.setdefault((labels.get("group", ""), rank), {})
        states[labels.get("state", "")] = int(value)
    requests: dict[tuple[str, int], dict[str, int]] = {}
    for rank, labels, value in by_rank(samples.get("requests", ())):
        states = requests.setdefault((labels.get("group", ""), rank), {})
        states[labels.get("state", "")] = int(value)
    calls = _calls(samples)
    found: dict[str, dict[int, Position]] = {}
    for (group, rank), states in counts.items():
        if "launched" not in states:
            continue
        asked = requests.get((group, rank), {})
        completed = states.get("completed")
        sequence, signature = calls.get((group, rank), (None, None))
        found.setdefault(group, {})[rank] = Position(
            states["launched"],
            completed,
            states.get("started"),
            signature if completed is not None and sequence == completed + 1 else None,
            (asked["posted"], asked["completed"]) if len(asked) == 2 else None,
        )
    return found


def _calls(samples: Samples) -> dict[tuple[str, int], tuple[int, Signature]]:
    """Return by group and rank the number and signature of what has long been in flight."""
    return {
        (labels.get("group", ""), rank): (
            int(sequence),
            Signature(
                operation(labels.get("collective", "")),
                elements(labels.get("input", "")),
                elements(labels.get("output", "")),
                labels.get("dtype", ""),
            ),
        )
        for rank, labels, sequence in by_rank(samples.get("call", ()))
    }


def _groups(
    samples: Samples, table: Mapping[str, Mapping[int, Position]]
) -> tuple[dict[str, Group], dict[str, Mapping[int, Position]]]:
    """Return the groups that are reported, and the positions in them."""
    claims = count_claims(series.labels for series in samples.get("groups", ()))
    groups: dict[str, Group] = {}
    positions: dict[str, Mapping[int, Position]] = {}
    for name, ranks in table.items():
        found = resolve(name, claims.get(name, Claims()), ranks)
        inside: dict[str, dict[int, Position]] = {group.name: {} for group in found}
        # No rank is in two groups of one name, of which a job has as many as nodes.
        group_of = {rank: group.name for group in found for rank in group.members}
        for rank, place in ranks.items():
            if rank in group_of:
                inside[group_of[rank]][rank] = place
        groups |= {group.name: group for group in found}
        positions |= inside
    return groups, positions


def by_group(
    samples: Samples, name: str, groups: Mapping[str, Group]
) -> dict[tuple[str, int], float]:
    """Return values by group and rank; of groups that share a name, that of the rank."""
    split: dict[int, list[str]] = {}
    for key, of_name in groups.items():
        for rank in of_name.members if " (" in key else ():
            split.setdefault(rank, []).append(key)
    found: dict[tuple[str, int], float] = {}
    for rank, labels, value in by_rank(samples.get(name, ())):
        group = labels.get("group", "")
        if group not in groups:
            own = (key for key in split.get(rank, ()) if key.startswith(f"{group} ("))
            group = next(own, group)
        found[group, rank] = value
    return found


def _with_ages(
    positions: Mapping[str, Mapping[int, Position]], ages: Mapping[tuple[str, int], float]
) -> dict[str, Mapping[int, Position]]:
    """Return the positions with whether their rank has launched another collective since."""
    newest: dict[int, float] = {}
    for (_, rank), age in ages.items():
        newest[rank] = min(age, newest.get(rank, age))
    return {
        name: {
            rank: replace(position, went_on=ages.get((name, rank), 0.0) > newest.get(rank, 0.0))
            for rank, position in ranks.items()
        }
        for name, ranks in positions.items()
    }


def _elsewhere(
    ages: Mapping[tuple[str, int], float], positions: Mapping[str, Mapping[int, Position]]
) -> frozenset[int]:
    """Return the ranks that wait for a peer in what is not counted: a send or a receive."""
    waiting = set()
    for group, rank in ages:
        position = positions.get(group, {}).get(rank)
        if position is None or (position.completed is not None and position.in_flight is None):
            waiting.add(rank)
    return frozenset(waiting)
