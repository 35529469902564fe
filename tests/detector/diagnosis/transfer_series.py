"""A job whose back end measures durations, as the diagnoser of communication sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from detector.diagnosis.exported import Answers, series
from detector.diagnosis.training_layout import Job, Layout, random_layout
from peerwatch_detector.diagnosis.collectives.members import format_ranks
from peerwatch_detector.diagnosis.collectives.slowness.communication_diagnoser import (
    CommunicationDiagnoser,
)
from peerwatch_detector.diagnosis.verdict import Verdict

CALLS_PER_SECOND = 5.0
Seconds = Callable[[str, tuple[int, ...]], float]


@dataclass
class TransferJob:
    """Process groups over nodes, and how long one collective of each takes.

    Parameters
    ----------
    groups
        Members by name; what stands before the first hyphen is the description.
    seconds
        Own duration of one collective, by group.
    per_node
        Ranks on a node.
    loss
        Share of TCP segments that a node sends again, where that is much.
    in_flight
        Work requests that a rank has posted and that have not completed, in every group of it.
    requests
        Work requests that complete per second, of every rank; 0: they are not counted.
    """

    groups: Mapping[str, tuple[int, ...]]
    seconds: Mapping[str, float]
    per_node: int = 1
    loss: dict[str, float] = field(default_factory=dict)
    size: float = 1e6
    in_flight: dict[int, float] = field(default_factory=dict)
    requests: float = 0.0

    def node(self, rank: int) -> str:
        return f"n{rank // self.per_node}"

    def answers(self) -> Answers:
        found: Answers = {name: [] for name in CommunicationDiagnoser.queries}
        for name, ranks in self.groups.items():
            kind = {"group": name, "collective": "all_reduce"}
            members = {"description": name.split("-")[0], "members": format_ranks(ranks)}
            found["membership"].append(series({"group": name, **members}, 1))
            found["calls"].append(series(kind, CALLS_PER_SECOND))
            found["volume"].append(series(kind, CALLS_PER_SECOND * self.size))
            share = CALLS_PER_SECOND * self.seconds[name]
            for node in sorted({self.node(rank) for rank in ranks}):
                found["transfer"].append(series({**kind, "node": node}, share))
            for rank in ranks if self.requests else ():
                labels = {"group": name, "rank": rank, "node": self.node(rank)}
                found["completing"].append(series(labels, self.requests))
                if self.in_flight.get(rank):
                    found["in_flight"].append(series(labels, self.in_flight[rank]))
        for rank in sorted({rank for ranks in self.groups.values() for rank in ranks}):
            found["ranks"].append(series({"rank": rank, "node": self.node(rank)}, 1))
        for node, share in self.loss.items():
            found["loss"].append(series({"node": node}, share))
        return found

    def diagnosed(self, seconds: float = 125.0) -> list[Verdict]:
        """Return what stands after so many seconds of this."""
        diagnoser, verdicts, found = CommunicationDiagnoser("llm"), [], self.answers()
        for passed in range(0, int(seconds) + 1, 60):
            verdicts = list(diagnoser.diagnose(found, 1e9 + passed))
        return verdicts


def healthy(seed: int) -> TransferJob:
    """Return a healthy job of a random layout: its dimensions differ, and every group by noise."""
    random = Random(seed)
    layout: Layout = random_layout(random, 256)
    job = Job(layout, random)
    usual = {kind: 10 ** random.uniform(-4, -1) for kind in ("tp", "dp", "pp", "ep", "world")}
    noise = random.uniform(0, 0.05)
    times = {
        name: usual[name.split("-")[0]] * random.lognormvariate(0, noise) for name in job.groups
    }
    return TransferJob(job.groups, times, per_node=random.choice((1, 2, 4, 8)))
