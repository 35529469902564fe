"""Says of a job that gets on whose own work the others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.collectives.members import format_ranks
from peerwatch_detector.diagnosis.collectives.slowness.blocks import QUERIES, Block, Blocks
from peerwatch_detector.diagnosis.collectives.slowness.lateness import compute_stragglers
from peerwatch_detector.diagnosis.collectives.slowness.loss import LOSS_QUERIES
from peerwatch_detector.diagnosis.collectives.slowness.stages import (
    STAGES_QUERY,
    beyond_stage,
    read_stages,
)
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.every import Every
from peerwatch_detector.diagnosis.verdict import Verdict

# For this share of its time a group waits for a straggler: without it the job is 1.2 times as fast,
# the limit of Aegis and of Greyhound.
LEAST_SHARE = 1 - 1 / 1.2
# Blocks of 15 s or more, one after the other: a pause makes one of them late, or two apart.
_LEAST_BLOCKS = 2
# Blocks of different groups end at different times; older ones are of another time. In lengths of a
# block. Chosen: the next one may be read 9 s late (of 15 s), and below 2 a missing one is seen.
_BLOCKS_APART = 1.6
# Sequences differ in length, and with them who is late from step to step; over so many steps of
# random lengths no rank is late by a sixth in the mean. Chosen: chance shrinks with the root of 20,
# to less than a quarter of what it is in a step.
_LEAST_STEPS = 20
_QUERIES = {
    **QUERIES,
    **LOSS_QUERIES,
    "stages": STAGES_QUERY,
    "steps": "max(rate(rank_steps_total{ {{- job -}} }[2m]))",
    # The time a rank spends in a group's collectives, per second: the straggler waits least, and
    # no clock is compared. Only where it differs.
    "waits": (
        "sum by (node, group, rank) (rate(collective_duration_seconds_total{ {{- job -}} }[1m]))"
        " and on (group) (max by (group) (sum by (group, rank)"
        " (rate(collective_duration_seconds_total{ {{- job -}} }[1m])))"
        " - min by (group) (sum by (group, rank)"
        f" (rate(collective_duration_seconds_total{{ {{{{- job -}}}} }}[1m]))) > {LEAST_SHARE:.4f})"
    ),
    # A rank that saves for all arrives late, and is not slow.
    "saving": (
        'sum by (node, rank) (rate(span_seconds_total{ {{- job -}} ,segment="checkpoint"}[1m])) > 0'
    ),
}
# They are means over so many seconds, and are taken anew as often: the window of other rates, which
# holds four scrapes of 15 s.
_WAITS_SECONDS = 60.0


@dataclass(slots=True)
class _Repeated:
    """In how many blocks in a row a node was the straggler; Unix times; what this means."""

    blocks: int
    since: float
    counted: float
    last: float
    verdict: Verdict


class StragglerDiagnoser:
    """Names the node whose rank arrives last at collectives, block after block.

    Where durations are known, waiting is compared, which needs no clock. Else arrivals are, where
    ranks share a host or the offsets of their clocks are known: a clock that is off cannot be told
    from a rank that is late.
    """

    name: ClassVar[str] = "stragglers"
    queries: ClassVar[Mapping[str, str]] = _QUERIES

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._blocks = Blocks()
        self._recent: dict[str, tuple[float, Block]] = {}
        self._repeated: dict[str, _Repeated] = {}
        self._waits = Every(_WAITS_SECONDS)

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return what stands now; see ``Diagnoser``."""
        new = self._blocks.update(samples)
        if self._waits.is_due(now):
            new += _waiting(samples)
        self._recent |= {block.group: (now, block) for block in new}
        self._recent = {
            group: (time, block)
            for group, (time, block) in self._recent.items()
            if now - time <= _BLOCKS_APART * block.duration
        }
        # Who receives what a lossy node sends again and again is late as well.
        if new and not samples.get("loss"):
            saving = {rank: share for rank, _, share in by_rank(samples.get("saving", ()))}
            self._evaluate(_nodes(samples), read_stages(samples), saving, now)
        longest = max((block.duration for _, block in self._recent.values()), default=0.0)
        self._repeated = {
            node: repeated
            for node, repeated in self._repeated.items()
            if now - repeated.last <= _BLOCKS_APART * longest
        }
        steps = [float(series.values[-1]) for series in samples.get("steps", ())]
        # Where steps are not counted, blocks of collectives must do.
        least = _LEAST_STEPS / steps[0] if steps and steps[0] > 0 else 0.0
        return [
            repeated.verdict
            for repeated in self._repeated.values()
            if repeated.blocks >= _LEAST_BLOCKS and repeated.last - repeated.since >= least
        ]

    def _evaluate(
        self,
        nodes: Mapping[int, str],
        stages: Mapping[int, int],
        saving: Mapping[int, float],
        now: float,
    ) -> None:
        """Take in the newest blocks of all groups."""
        # Of each node the block in which most is waited for it, and for which share of its time.
        shares: dict[str, dict[int, float]] = {}
        most: dict[str, tuple[float, str, Block]] = {}
        for group, (_, block) in self._recent.items():
            of_block = block.shares
            own = {rank: s - saving.get(rank, 0.0) for rank, s in of_block.items()}
            shares[group] = beyond_stage(own, stages, nodes)
            for each, share in of_block.items():
                found = share, block.group, block
                place = nodes.get(each, "")
                if place not in most or found[:2] > most[place][:2]:
                    most[place] = found
        named = _stragglers(shares, nodes)
        for node in [node for node in self._repeated if node not in named]:
            del self._repeated[node]
        for node, rank in named.items():
            if not node:
                # The series of its ranks have gone since their block.
                continue
            share, _, block = most[node]
            before = self._repeated.get(node)
            since = before.since if before else now - block.duration
            blocks, counted = (before.blocks, before.counted) if before else (0, -inf)
            # Groups finish their blocks one after the other: these are not several in a row.
            if now - counted > block.duration / 2:
                blocks, counted = blocks + 1, now
            verdict = self._verdict(node, rank, block, share, since, alone=len(named) == 1)
            self._repeated[node] = _Repeated(blocks, since, counted, now, verdict)

    def _verdict(
        self, node: str, rank: int | None, block: Block, share: float, since: float, *, alone: bool
    ) -> Verdict:
        who = f"rank {rank} on node {node}" if rank is not None else f"the ranks of node {node}"
        others = tuple(sorted(other for other in block.lateness if other != rank)) if alone else ()
        group = f"group {block.group} (ranks {format_ranks(block.lateness)})"
        text = f"{who}: {group} waits for it for {share:.0%} of its time"
        if not alone:
            text += "; so it is on other nodes: uneven work rather than a slow node"
        return Verdict(
            self.job_id,
            node if alone else "",
            rank if alone else None,
            "compute_straggler",
            "unknown",
            "likely" if alone else "undecided",
            "inspect",
            text,
            others if rank is not None else (),
            since,
        )


def _stragglers(
    shares: Mapping[str, Mapping[int, float]], nodes: Mapping[int, str]
) -> dict[str, int | None]:
    """Return the nodes that others wait for, each with the rank if it is a single one."""
    by_node: dict[str, dict[str, float]] = {}
    for group, members in shares.items():
        table: dict[str, float] = {}
        for rank, share in members.items():
            node = nodes.get(rank, "")
            table[node] = max(share, table.get(node, 0.0))
        if len(table) > 1:
            by_node[group] = table
    ranks = compute_stragglers(shares, LEAST_SHARE)
    if len({nodes.get(rank, "") for members in shares.values() for rank in members}) > 1:
        named = compute_stragglers(by_node, LEAST_SHARE)
    else:
        named = tuple(sorted({nodes.get(rank, "") for rank in ranks}))
    own: dict[str, list[int]] = {node: [] for node in named}
    for rank in ranks:
        if (place := nodes.get(rank, "")) in own:
            own[place].append(rank)
    return {node: found[0] if len(found) == 1 else None for node, found in own.items()}


def _waiting(samples: Samples) -> list[Block]:
    """Return the groups whose ranks wait unequally, by durations, as blocks of a minute."""
    groups: dict[str, dict[int, float]] = {}
    for rank, labels, share in by_rank(samples.get("waits", ())):
        groups.setdefault(labels.get("group", ""), {})[rank] = share
    found = []
    for group, ranks in groups.items():
        if len(ranks) > 1:
            most = max(ranks.values())
            lateness = {rank: most - share for rank, share in ranks.items()}
            found.append(Block(group, 0, 1.0, 60.0, lateness))
    return found


def _nodes(samples: Samples) -> dict[int, str]:
    return {
        rank: labels.get("node", "")
        for name in ("arrival", "waits", "clock")
        for rank, labels, _ in by_rank(samples.get(name, ()))
    }
