"""Says of a job that stands which rank or link it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from peerwatch_detector.diagnosis.activity import Occupation
from peerwatch_detector.diagnosis.collectives.hang.hang import Hang, hangs
from peerwatch_detector.diagnosis.collectives.hang.pauses import Pauses
from peerwatch_detector.diagnosis.collectives.hang.text import collective, sentence
from peerwatch_detector.diagnosis.collectives.hang.waits_for import Wait
from peerwatch_detector.diagnosis.collectives.series import QUERIES, Reading, read
from peerwatch_detector.diagnosis.collectives.snapshot import StableCounts
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.verdict import Action, Confidence, Domain, Verdict

# Healthy ranks wait for one another, but rarely for so long (seconds); a page within a minute of
# the stop needs it.
LEAST_SECONDS = 30.0
# What may be a pause is one up to here: collectives time out after ten minutes (NCCL, torch).
MOST_SECONDS = 600.0
# A hang of this many times the limit is no pause of an unusual length. Chosen: two minutes where no
# pause was seen.
_SURE_TIMES = 4
# In its first collectives a job still loads data and compiles, each rank in its own time. Chosen: a
# few steps of a small job; of more, a hang soon after the start would be told late.
_UNDER_WAY = 20
# More nodes than these do not fail at the same moment: what they have in common does. Chosen: one
# more than the two of a pair that breaks together.
_MOST_NODES = 3

_CHARACTER: dict[str, tuple[Domain, Action]] = {
    # Its program, its data, its host: who does not come is known, not why.
    "not_launched": ("unknown", "isolate"),
    "launched_not_started": ("hardware", "isolate"),
    "mismatch": ("user", "ask"),
    "call_order": ("user", "ask"),
    "network_stuck": ("hardware", "isolate"),
    "no_data": ("unknown", "inspect"),
}


@dataclass(frozen=True, slots=True)
class _Standing:
    """A hang that lasts: since when, and what speaks against a fault."""

    root: Hang
    since: float
    seconds: float
    limit: float
    why_open: str


class HangDiagnoser:
    """Names the root of a hang, from the positions of all ranks in their process groups.

    A rank that its peers wait for is not always at fault: it may save a checkpoint, evaluate the
    model, or load data. As long as it does, or waits no longer than it has before, the verdict is
    undecided.
    """

    name: ClassVar[str] = "collectives"
    queries: ClassVar[Mapping[str, str]] = QUERIES

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._stable = StableCounts()
        self._pauses = Pauses()
        self._occupation = Occupation()

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return what stands now; see ``Diagnoser``."""
        reading = read(samples, now)
        if reading is None:
            self._stable, self._occupation = StableCounts(), Occupation()
            self._pauses.end()
            return []
        furthest = _furthest(reading)
        self._pauses.check(furthest)
        self._occupation.update(reading.activity, reading.read_at)
        snapshot = self._stable.update(reading.snapshot, reading.read_at)
        roots = [root for root in hangs(snapshot) if not self._accounted(root, reading)]
        waited = _waited(reading)
        found = [self._standing(root, waited, furthest, now) for root in roots]
        self._pauses.update(now)
        found = [standing for standing in found if standing.seconds >= LEAST_SECONDS]
        several = _nodes(roots, reading) > _MOST_NODES
        # Thousands of ranks may be waited for in one collective.
        waits = {standing.root.wait for standing in found}
        whats = {wait: collective(wait, reading) if wait else "a collective" for wait in waits}
        missing = {wait for wait in waits if wait and _most_are_missing(wait, reading)}
        return [
            verdict
            for standing in found
            for verdict in self._verdicts(
                standing,
                reading,
                whats[standing.root.wait],
                several=several,
                most=standing.root.wait in missing,
            )
        ]

    def _accounted(self, root: Hang, reading: Reading) -> bool:
        """Whether the end or the stop of a process explains it, which is a verdict by itself."""
        return bool(reading.accounted.intersection(root.ranks))

    def _standing(
        self, root: Hang, waited: Mapping[str, float], furthest: int, now: float
    ) -> _Standing:
        key = (root.class_name, root.ranks, root.wait.group if root.wait and not root.ranks else "")
        begun = now - (waited.get(root.wait.group, 0.0) if root.wait else 0.0)
        since, longest = self._pauses.seen(key, begun, now)
        limit, why_open = LEAST_SECONDS, ""
        if 2 * longest > limit:
            limit, why_open = 2 * longest, f"it has recovered from {longest:.0f} s before"
        busy = [text for rank in root.ranks if (text := self._occupation.of(rank))]
        if busy:
            limit, why_open = MOST_SECONDS, busy[0]
        if furthest < _UNDER_WAY:
            limit, why_open = MOST_SECONDS, "the job is starting"
        limit = min(limit, MOST_SECONDS)
        seconds = now - since
        return _Standing(root, since, seconds, limit, "" if seconds >= limit else why_open)

    def _verdicts(
        self, standing: _Standing, reading: Reading, what: str, *, several: bool, most: bool
    ) -> list[Verdict]:
        root = standing.root
        why_open = standing.why_open
        if several and root.class_name == "not_launched":
            why_open = (
                why_open or f"ranks of more than {_MOST_NODES} nodes at once: no node's fault"
            )
        elif most and root.class_name == "not_launched":
            why_open = why_open or "most ranks of the group are missing: no single node's fault"
        decided = root.decided and not why_open
        confidence: Confidence = "undecided"
        if decided:
            sure = standing.seconds >= _SURE_TIMES * standing.limit
            confidence = "sure" if sure and root.class_name != "network_stuck" else "likely"
        domain, action = _CHARACTER[root.class_name]
        named: Sequence[int | None] = [None]
        if root.class_name != "call_order" and (root.decided or root.class_name == "no_data"):
            named = root.ranks or named
        text = sentence(root, reading, what, why_open=why_open)
        return [
            Verdict(
                self.job_id,
                "" if rank is None else reading.nodes.get(rank, ""),
                rank,
                root.class_name,
                domain,
                confidence,
                action if decided else "inspect",
                text,
                root.victims,
                standing.since,
            )
            for rank in named
        ]


def _waited(reading: Reading) -> dict[str, float]:
    """Return by group how long the job has waited, in seconds, as the ranks that wait say."""
    found: dict[str, float] = {}
    for (group, _), age in reading.ages.items():
        found[group] = max(age, found.get(group, age))
    return found


def _furthest(reading: Reading) -> int:
    """Return the number of collectives that the busiest group has launched."""
    return max(
        (place.enqueued for _, ranks in reading.snapshot for place in ranks.values()), default=0
    )


def _nodes(roots: Sequence[Hang], reading: Reading) -> int:
    ranks = {rank for root in roots if root.class_name == "not_launched" for rank in root.ranks}
    return len({reading.nodes.get(rank, "") for rank in ranks})


def _most_are_missing(wait: Wait, reading: Reading) -> bool:
    """Whether fewer ranks wait in a collective than are waited for."""
    snapshot = reading.snapshot
    members = snapshot.groups[wait.group].members
    positions = snapshot.members_of(wait.group)
    there = sum(place.enqueued >= wait.sequence for place in positions.values())
    return there < len(members) - there
