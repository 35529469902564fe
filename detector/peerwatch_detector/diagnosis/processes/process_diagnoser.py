"""A rank whose process ended or was stopped while others of its job live.

MegaScale (NSDI'24) watches the state of every training process, Aegis (NSDI'25) names a dead one
before all else: the others wait for it, and show everything that a fault of their own would.

Ranks end at different moments for good reasons, too: a job finishes, leaves after a checkpoint, is
started again with fewer ranks. So nothing is said before the rest of the job has lived on for a
while without a further end, and without working on: whoever works waits for nobody. The first end
of all is the one named, unless that was a normal one. Of a job that died as a whole, the rank is
named that ended otherwise than all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from peerwatch_detector.diagnosis.activity import Occupation, activity_queries, read_activity
from peerwatch_detector.diagnosis.by_rank import number_of
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.processes.halts import Halt, Place, odd_ones, who_was_first
from peerwatch_detector.diagnosis.processes.samples import (
    LIVE,
    by_place,
    labels_of,
    states_of,
    values_of,
)
from peerwatch_detector.diagnosis.verdict import ClassName, Confidence, Domain, Verdict
from peerwatch_detector.frame import Series

# So long the others must have lived on. A launcher ends the rest of a job within seconds of the
# first failure, and ranks that finish do so together; operators and debuggers stop a process for
# less. With it a finding comes within 45 s also where exporters are scraped every 15 s.
GRACE_SECONDS = 15.0
# Exporters see an end within a second, on their own clocks: what lies closer together has no order.
# That second, and two by which clocks may differ (CLOCK_SECONDS of episode.py).
_TOGETHER_SECONDS = 3.0
# On a busy node a rank that lost its peers needs half a minute to end: torch writes down what it
# knows, and a core may be dumped. Chosen: four times that.
_LONGEST_DEATH_SECONDS = 120.0
# A rank that finished is missed with the first reading that lacks it, up to a scrape of 15 s and
# two readings late: what ended within this time before that may have ended after it.
_FINISH_SEEN_WITHIN = 25.0
# A rank that is stopped for this share of the time, for a minute and more, is slowed down by it:
# its steps take 1.25 times as long, beyond the 1.2 of stragglers. Chosen: four scrapes of 15 s.
_STOPPED_SHARE = 0.2
_SLOWED_SECONDS = 60.0

# A rank that is gone without a trace is a question once the others have lived on for so long: of
# jobs that finish, the last ranks save and clean up for less. Chosen: as long as a rank may need to
# end.
_TRACELESS_SECONDS = 120.0

# A line that says why ranks end is written at most so long before the first of them has. Chosen:
# twice the half minute that a rank needs to end on a busy node.
_WRITTEN_WITHIN = 60.0
_ENDED = (
    'and on () (max(rank_process_state{ {{- job -}} ,state=~"exited|zombie"}) == 1'
    ' or max(rank_exit_info{ {{- job -}} ,error!=""}))'
)
_CLASSES: dict[str, ClassName] = {
    "exited": "rank_exited",
    "zombie": "rank_zombie",
    "stopped": "rank_stopped",
    "ending": "rank_exited",
}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A job as it is seen at one moment.

    Parameters
    ----------
    live
        Ranks that run.
    halts
        Ranks that do not, the first to halt first.
    nodes
        On which there are ranks, living or not.
    oom
        Nodes whose kernel killed a process for lack of memory.
    mismatch
        Ranks that wrote that others called another collective, or one of another size.
    """

    live: set[Place]
    halts: Sequence[Halt]
    nodes: set[str]
    oom: set[str]
    mismatch: frozenset[Place] = frozenset()

    def summary(self, first: Halt, more: int, victims: int) -> str:
        """Return what happened in a sentence.

        Parameters
        ----------
        first
            The rank that is named.
        more
            How many others halted with it.
        victims
            How many ranks suffer from it.
        """
        place = first.place
        others = f" (and {more} more)" if more else ""
        what = first.words(place.node in self.oom)
        rest = "left" if self.live else "ended otherwise"
        ranks = "1 rank" if victims == 1 else f"{victims} ranks"
        whose = " The program failed, not the node." if self.domain(first) == "user" else ""
        who = f"rank {place.rank} on node {place.node}{others}"
        return f"{who} {what}; {ranks} of the job {rest}.{whose}"

    def domain(self, first: Halt) -> Domain:
        """Return whose doing it is: ranks that do not call the same end by the program."""
        return "user" if self.mismatch else first.domain

    def mismatched(self, first: Halt, job_id: str, victims: Sequence[int]) -> Verdict:
        """Return that the ranks' collectives differ: which rank is wrong, gloo does not say."""
        wrote = min(self.mismatch)
        return Verdict(
            job_id,
            "",
            None,
            "mismatch",
            "user",
            "likely",
            "inspect",
            f"ranks called collectives of different kind or size under one number: rank "
            f"{wrote.rank} on node {wrote.node} got what it did not expect, which ended the job; "
            "who of them is wrong the line does not say.",
            tuple(sorted({*victims, first.place.rank})),
            first.since,
        )


class ProcessDiagnoser:
    """Names ranks whose processes have ended or stand still.

    Parameters
    ----------
    job_id
        The scheduler's id of the job.
    """

    name: ClassVar[str] = "processes"
    queries: ClassVar[Mapping[str, str]] = {
        "states": "max by (node, rank, state) (rank_process_state{ {{ job }} }) == 1",
        # A node's clock says how long ago, the server's when that was read: the clocks of nodes
        # need not agree.
        "since": "min by (node, rank) (timestamp(rank_halted_seconds{ {{ job }} })"
        " - rank_halted_seconds{ {{ job }} })",
        "exits": "max by (node, rank, code, signal, error) (rank_exit_info{ {{ job }} })",
        "ranks": "max by (node, rank, world_size) (rank_info{ {{ job }} })",
        "heartbeats": "max by (node, rank) (rank_heartbeat_timestamp_seconds{ {{ job }} })",
        "stopped": "max by (node, rank) (rate(rank_stopped_seconds_total{ {{ job }} }[1m]))"
        f" > {_STOPPED_SHARE}",
        # Where ranks can be seen. What is not scraped may run as before: silence is no end.
        "watched": 'group by (node) (exporter_collector_success{collector="ranks"} == 1)'
        " and on (node) group by (node) (last_over_time(rank_info{ {{ job }} }[10m]))",
        "oom": 'max by (node) (increase(host_kernel_events_total{class="oom"}[3m])) > 0'
        " and on (node) max by (node) (rank_info{ {{ job }} })",
        # What gloo and torch write as they end a job whose ranks do not call the same.
        "mismatch": "max by (node, rank) (last_over_time(log_event_last_timestamp_seconds"
        '{ {{- job -}} ,signature="collective_mismatch"}[5m]))'
        f" {_ENDED}",
        **activity_queries(_ENDED),
    }

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        # The node of each rank that has lived, by number; when those that have left were missed.
        self._ranks: dict[int, str] = {}
        self._missed: dict[int, float] = {}
        self._world_size = ""
        self._seen: dict[Place, float] = {}
        self._named: frozenset[Place] = frozenset()
        self._slowed: dict[Place, float] = {}
        self._occupation = Occupation()
        # Ranks whose hook takes their heartbeat away at the end.
        self._hooked: set[int] = set()

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return the ranks that ended or were stopped first, and those stopped again and again."""
        ranks = by_place(samples["ranks"], "world_size")
        exits = labels_of(samples["exits"])
        states = {
            place: "ending" if state in LIVE and exits.get(place, {}).get("error") else state
            for place, state in states_of(samples["states"]).items()
        }
        # A rank of which only the heartbeat can be seen has no state, and lives.
        live = {place for place in ranks if states.get(place, "running") in LIVE}
        watched = {series.labels.get("node", "") for series in samples["watched"]}
        self._hooked |= {place.rank for place in values_of(samples["heartbeats"])}
        self._follow(live, ranks, watched, now)
        self._occupation.update(read_activity(samples), {place.rank: now for place in live})
        halts = self._halts(live, ranks, states, exits, values_of(samples["since"]), now)
        oom = {series.labels.get("node", "") for series in samples["oom"]}
        mismatch = _written(values_of(samples.get("mismatch", ())), halts)
        seen = _Seen(live, halts, {place.node for place in ranks}, oom, mismatch)
        if not live:
            # All are gone: the job has ended. All stand still: it was suspended.
            self._named = frozenset()
            return self._verdicts(self._took_the_job(halts, now), seen)
        ended = self._first_ends([h for h in halts if h.state != "stopped"], live, now)
        stopped = self._stopped([halt for halt in halts if halt.state == "stopped"], now)
        self._named = frozenset(halt.place for halt in (*ended, *stopped))
        verdicts = [*self._verdicts(ended, seen), *self._verdicts(stopped, seen)]
        verdicts += self._traceless(live, now)
        return [*verdicts, *self._slowed_down(samples["stopped"], seen, now)]

    def _follow(
        self, live: set[Place], ranks: Mapping[Place, str], watched: set[str], now: float
    ) -> None:
        """Note which ranks have left without a trace, as those do that finish."""
        sizes = Counter(ranks[place] for place in live)
        world_size = sizes.most_common(1)[0][0] if sizes else self._world_size
        if not live or world_size != self._world_size:
            # Over, or started again with another number of ranks.
            self._missed, self._ranks = {}, {}
        self._world_size = world_size
        known = {place.rank for place in ranks}
        gone = (r for r, node in self._ranks.items() if r not in known and node in watched)
        missed = dict.fromkeys(gone, now) | self._missed
        self._missed = {rank: time for rank, time in missed.items() if rank not in known}
        self._ranks |= {place.rank: place.node for place in live}

    def _halts(
        self,
        live: set[Place],
        ranks: Mapping[Place, str],
        states: Mapping[Place, str],
        exits: Mapping[Place, Mapping[str, str]],
        since: Mapping[Place, float],
        now: float,
    ) -> list[Halt]:
        """Return the ranks of this start of the job that do not run."""
        running = {place.rank for place in live}
        halted = {
            place: state
            for place, state in states.items()
            # What another start of the job left has its number elsewhere, or another size.
            if state in _CLASSES
            and place.rank not in running
            and ranks.get(place, self._world_size) in ("", self._world_size)
        }
        self._seen = {place: self._seen.get(place, now) for place in halted}
        return sorted(
            (
                Halt(place, state, since.get(place, self._seen[place]), exits.get(place, {}))
                for place, state in halted.items()
            ),
            key=lambda halt: (halt.since, halt.place),
        )

    def _first_ends(self, ends: Sequence[Halt], live: Iterable[Place], now: float) -> list[Halt]:
        """Return the ranks that ended first, once the others have lived on without them."""
        failed = [halt for halt in ends if not halt.finished]
        if not failed:
            return []
        first = failed[0].since
        finished = [halt.since for halt in ends if halt.finished]
        finished += [missed - _FINISH_SEEN_WITHIN for missed in self._missed.values()]
        if any(time <= first for time in finished):
            # The job was finishing already; a rank that fails at that keeps nobody waiting.
            return []
        together = [halt for halt in failed if halt.since <= first + _TOGETHER_SECONDS]
        # Whoever works on waits for nobody: of a job that finishes, some ranks take longer.
        worked = self._occupation.last_seen(place.rank for place in live)
        last = max([worked, *(halt.since for halt in ends), *self._missed.values()])
        if len({halt.place.node for halt in together}) > 1:
            together = odd_ones(together) or together
        # Once said, it stands whoever else ends for it.
        stands = any(halt.place in self._named for halt in together)
        return together if stands or now - last >= GRACE_SECONDS else []

    def _took_the_job(self, halts: Sequence[Halt], now: float) -> list[Halt]:
        """Return the ranks that ended otherwise than all others of a job that died with them.

        Where a connection that breaks is an error, as with gloo, a rank that is killed ends the
        whole job within a second. A job that was cancelled ends in one way throughout.
        """
        size = number_of(self._world_size) or 0
        ended = [halt for halt in halts if halt.state != "stopped"]
        if len(ended) < max(3, size) or any(halt.finished for halt in ended) or self._missed:
            return []
        first, last = ended[0].since, ended[-1].since
        if last - first > _LONGEST_DEATH_SECONDS or now - last < GRACE_SECONDS:
            return []
        odd = odd_ones(ended)
        # A launcher that cancels a job kills half a minute later what has not ended by then.
        if last - first > GRACE_SECONDS and ended[0] not in odd:
            return []
        return odd if len({halt.place.node for halt in odd}) == 1 else []

    def _stopped(self, halts: Sequence[Halt], now: float) -> list[Halt]:
        """Return the ranks that are stopped for longer than anybody would do in passing."""
        if not halts:
            return []
        last = max(halt.since for halt in halts)
        return [
            halt
            for halt in halts
            if halt.place in self._named or now - max(last, halt.since) >= GRACE_SECONDS
        ]

    def _verdicts(self, named: Sequence[Halt], seen: _Seen) -> list[Verdict]:
        """Return a verdict for each node of the ranks that are named."""
        if not named:
            return []
        chosen = {halt.place for halt in named}
        victims = {place.rank for place in seen.live}
        victims |= {halt.place.rank for halt in seen.halts if halt.place not in chosen}
        where = sorted({halt.place.node for halt in named})
        # What happens to half of the job at once is done to the job, not by a node.
        common = len(where) > 1 and 2 * len(where) >= len(seen.nodes)
        confidence: Confidence = "sure" if len(where) == 1 and seen.live else "likely"
        found = []
        for node in [""] if common else where:
            own = [halt for halt in named if not node or halt.place.node == node]
            first = who_was_first(own)
            verdict = Verdict(
                self.job_id,
                node,
                first.place.rank if node else None,
                _CLASSES[first.state],
                seen.domain(first),
                "undecided" if common else confidence,
                "ask" if seen.mismatch else first.action,
                seen.summary(first, len(own) - 1, len(victims)),
                tuple(sorted(victims)),
                first.since,
            )
            found.append(verdict)
        if seen.mismatch:
            found.append(seen.mismatched(who_was_first(named), self.job_id, sorted(victims)))
        return found

    def _traceless(self, live: set[Place], now: float) -> list[Verdict]:
        """Return the first rank that is gone without a trace, and whose end cannot be known.

        The hook takes the heartbeat away at a normal end. Without it a rank that finished and one
        that was killed and reaped look the same.
        """
        gone = {rank: time for rank, time in self._missed.items() if rank not in self._hooked}
        if not gone or now - max(self._missed.values()) < _TRACELESS_SECONDS:
            return []
        rank = min(gone, key=lambda number: (gone[number], number))
        node, victims = self._ranks.get(rank, ""), tuple(sorted({place.rank for place in live}))
        left = "1 rank" if len(victims) == 1 else f"{len(victims)} ranks"
        return [
            Verdict(
                self.job_id,
                node,
                rank,
                "rank_exited",
                "unknown",
                "undecided",
                "inspect",
                f"rank {rank} on node {node} is gone; it runs without the hook, so nothing says "
                f"whether it finished or was killed; {left} of the job left.",
                victims,
                gone[rank],
            )
        ]

    def _slowed_down(self, shares: Sequence[Series], seen: _Seen, now: float) -> list[Verdict]:
        """Return the ranks that are stopped again and again, and go on in between."""
        halted = {halt.place for halt in seen.halts if now - halt.since >= GRACE_SECONDS}
        found = {place: share for place, share in values_of(shares).items() if place not in halted}
        self._slowed = {place: self._slowed.get(place, now) for place in found}
        return [
            Verdict(
                self.job_id,
                place.node,
                place.rank,
                "rank_stopped",
                "unknown",
                "likely",
                "inspect",
                f"rank {place.rank} on node {place.node} is stopped again and again: "
                f"{100 * found[place]:.0f} % of the last minute.",
                tuple(sorted(other.rank for other in seen.live - {place})),
                since - _SLOWED_SECONDS,
            )
            for place, since in sorted(self._slowed.items())
            # One stop of less than the grace is in the mean of a minute for less than that.
            if now - since >= _SLOWED_SECONDS and len(seen.live | {place}) > 1
        ]


def _written(times: Mapping[Place, float], halts: Sequence[Halt]) -> frozenset[Place]:
    """Return who wrote a line about these ends, and not about those of an earlier start."""
    since = min((halt.since for halt in halts), default=0.0) - _WRITTEN_WITHIN
    return frozenset(place for place, time in times.items() if time >= since)
