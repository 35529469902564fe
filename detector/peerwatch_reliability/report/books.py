"""The books of one window: everything that is known of its reliability, with what is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.attribution import (
    AFTER_SECONDS,
    BEFORE_SECONDS,
    EvidenceByNode,
    attribution_of,
    with_node,
)
from peerwatch_reliability.accounting.components import rates_by_component
from peerwatch_reliability.accounting.crash_loops import crash_loops
from peerwatch_reliability.accounting.ettr import Plan
from peerwatch_reliability.accounting.failure_rates import (
    Exposed,
    rates_by_cause,
    rates_by_size,
    scaling_of,
    size_class,
    weekly_dispersion,
)
from peerwatch_reliability.accounting.goodput import losses_of
from peerwatch_reliability.accounting.incidents import incidents_of
from peerwatch_reliability.accounting.intervals import rate_of
from peerwatch_reliability.accounting.time_use import (
    LOSING,
    Progress,
    assumed,
    badput_of,
    ettr_of,
    time_use,
)
from peerwatch_reliability.lemons.episodes import Episode
from peerwatch_reliability.lemons.lemons import find_lemons
from peerwatch_reliability.lemons.signals import signals_of
from peerwatch_reliability.records import Window
from peerwatch_reliability.sources.prometheus.evidence import minute_of
from peerwatch_reliability.sources.prometheus.first_steps import start_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_reliability.accounting.attempts import Attempt, Chain
    from peerwatch_reliability.accounting.attribution import Attribution
    from peerwatch_reliability.accounting.components import ComponentRate
    from peerwatch_reliability.accounting.crash_loops import CrashLoop
    from peerwatch_reliability.accounting.failure_rates import Scaling, SizeRate
    from peerwatch_reliability.accounting.goodput import Key, Loss
    from peerwatch_reliability.accounting.incidents import Incident
    from peerwatch_reliability.accounting.intervals import Rate
    from peerwatch_reliability.accounting.time_use import Ettr, TimeUse
    from peerwatch_reliability.lemons.lemons import Lemons
    from peerwatch_reliability.records import Jobs, OutOfService
    from peerwatch_reliability.settings.config import ReliabilityConfig
    from peerwatch_reliability.sources.prometheus.evidence import Observed
    from peerwatch_reliability.sources.prometheus.signals import NodeSignals

_DAY = 86_400.0
# With fewer weeks nothing is known of bursts: intervals.py needs as many.
_WEEKS = 4


@dataclass(frozen=True, slots=True)
class Books:
    """What is known of a window.

    Parameters
    ----------
    window
        It.
    nodes
        How many nodes the cluster has, and how many days they were there in all.
    node_days
        Node-days of the window.
    chains, why, uses
        All attempts, why each ended, and what its time went into.
    ettr
        Of the cluster, weighted by GPUs.
    ettr_by_size
        Of each size class.
    failures_per_node_day
        r_f: failures of the infrastructure.
    sizes, scaling
        Rates by size of job, and how they grow with it.
    causes, components
        Failures per node-day by cause, and how often a single component of each kind fails.
    losses, badput, loops, incidents
        Goodput that failures cost, GPU-seconds that were not productive, crash loops, incidents.
    plan
        A typical large job of the cluster, from which ETTR is expected.
    lemons
        Nodes that fail again and again.
    degradation
        P_deg by job.
    out
        Times for which nodes were out of service within the window.
    missing
        What the numbers suffer from, a sentence each.
    """

    window: Window
    nodes: int
    node_days: float
    chains: Sequence[Chain]
    why: Mapping[Key, Attribution]
    uses: Mapping[Key, TimeUse]
    ettr: Ettr
    ettr_by_size: Mapping[str, Ettr]
    failures_per_node_day: Rate | None
    sizes: Sequence[SizeRate]
    scaling: Scaling | None
    causes: Mapping[str, Rate]
    components: Mapping[str, ComponentRate]
    losses: Sequence[Loss]
    badput: Mapping[str, float]
    loops: Sequence[CrashLoop]
    incidents: Sequence[Incident]
    plan: Plan | None
    lemons: Lemons
    degradation: Mapping[str, float]
    out: Sequence[OutOfService]
    missing: tuple[str, ...]


def books_of(
    jobs: Jobs,
    observed: Observed,
    signals: NodeSignals,
    window: Window,
    config: ReliabilityConfig,
) -> Books:
    """Return the books of a window.

    Parameters
    ----------
    jobs
        What the scheduler wrote down; times out of service also from before the window.
    observed, signals
        What Prometheus knows.
    window
        It; its end is now.
    config
        The settings.
    """
    chains = chains_of(jobs.rows, window.end)
    attempts = [each for chain in chains for each in chain.attempts]
    out: dict[str, list[OutOfService]] = {}
    for time_out in jobs.out:
        out.setdefault(time_out.node, []).append(time_out)
    why = {
        attempt.key: with_node(attribution, attempt, out)
        for attempt, attribution in _why(attempts, observed)
    }
    uses = {each.key: _use(each, why[each.key], observed, config) for each in attempts}
    fleet = sorted(
        {node for each in attempts for node in each.row.nodes} | {each.node for each in jobs.out}
    )
    count = max(config.nodes, len(fleet))
    inside = [each for each in attempts if each.start is not None and each.end > window.start]
    exposed = [
        Exposed(
            each.row.gpus,
            len(each.row.nodes),
            each.end,
            # What ran before the window is not counted in it.
            max(0.0, each.run_seconds - max(0.0, window.start - (each.start or 0.0))),
            why[each.key].is_failure_of_infrastructure,
            why[each.key].cause.name,
        )
        for each in inside
    ]
    failed = [each for each in exposed if each.failed]
    phi = weekly_dispersion((each.end for each in failed), window)
    losses = losses_of(chains, why)
    badput: dict[str, float] = {}
    for chain in chains:
        for name, seconds in badput_of(chain, uses).items():
            badput[name] = badput.get(name, 0.0) + seconds
    rate = rate_of(len(failed), count * window.days, phi)
    return Books(
        window,
        count,
        count * window.days,
        chains,
        why,
        uses,
        ettr_of((uses[each.key] for each in attempts), [float(each.row.gpus) for each in attempts]),
        _ettr_by_size(chains, uses),
        rate,
        sizes := rates_by_size(exposed, phi),
        scaling_of(sizes),
        rates_by_cause(exposed, window, count * window.days),
        rates_by_component(
            exposed, window, count * window.days, {**_gpus_per_node(inside), **signals.per_node}
        ),
        losses,
        badput,
        crash_loops(chains, uses, losses),
        incidents_of(chains, why, uses, observed.stalls),
        _plan(chains, uses, rate, config),
        find_lemons(
            _episodes(out, attempts, why),
            signals_of(
                fleet,
                attempts,
                why,
                [each.node for each in jobs.out if each.start >= window.start],
                signals.distinct_xids,
                signals.tickets,
            ),
            window,
            config.lemons,
        ),
        signals.degradation,
        sorted(
            (each for each in jobs.out if each.end is None or each.end > window.start),
            key=lambda each: each.start,
        ),
        (*jobs.missing, *observed.missing, *signals.missing, *_missing(attempts, window, config)),
    )


def _gpus_per_node(attempts: Sequence[Attempt]) -> dict[str, float]:
    """Return the most GPUs that a job held on a node; empty where none held any."""
    shares = [each.row.gpus / len(each.row.nodes) for each in attempts if each.row.nodes]
    most = max(shares, default=0.0)
    return {"gpu": most} if most else {}


def _why(attempts: Sequence[Attempt], observed: Observed) -> Iterator[tuple[Attempt, Attribution]]:
    """Yield each attempt with why it ended."""
    # Thousands of attempts end in the minute in which a power supply fails.
    of_minute: dict[int, EvidenceByNode] = {}
    for each in attempts:
        minute = minute_of(each.end)
        if minute not in of_minute:
            of_minute[minute] = EvidenceByNode(observed.by_minute.get(minute, ()))
        yield each, attribution_of(each, of_minute[minute].around(each))


def _use(
    attempt: Attempt, why: Attribution, observed: Observed, config: ReliabilityConfig
) -> TimeUse:
    job_id = attempt.row.job_id
    first = None
    if attempt.row.start is not None:
        first = observed.first_steps.get(start_of(job_id, attempt.row.start))
    if first is not None and not (attempt.start or 0.0) <= first <= attempt.end:
        # Of an attempt that began within the same minute.
        first = None
    checkpoint = observed.checkpoints.get((minute_of(attempt.end), job_id))
    return time_use(
        attempt,
        Progress(first, checkpoint),
        why.is_failure_of_infrastructure or attempt.row.state in LOSING,
        assumed(config.assumed.checkpoint_seconds),
        assumed(config.assumed.restart_seconds),
    )


def _ettr_by_size(chains: Sequence[Chain], uses: Mapping[Key, TimeUse]) -> dict[str, Ettr]:
    by_class: dict[str, list[TimeUse]] = {}
    for chain in chains:
        of_class = by_class.setdefault(size_class(chain.gpus), [])
        of_class += [uses[each.key] for each in chain.attempts]
    return {name: ettr_of(by_class[name]) for name in sorted(by_class, key=int)}


def _plan(
    chains: Sequence[Chain],
    uses: Mapping[Key, TimeUse],
    rate: Rate | None,
    config: ReliabilityConfig,
) -> Plan | None:
    """Return the largest job of the cluster as a plan, with the mean wait before an attempt."""
    started = [each for chain in chains for each in chain.attempts if each.start is not None]
    if rate is None or rate.value is None or not started:
        return None
    largest = max(started, key=lambda each: len(each.row.nodes))
    queue = sum(uses[each.key].queue for each in started) / len(started)
    return replace(
        Plan(len(largest.row.nodes), rate.value),
        checkpoint_seconds=config.assumed.checkpoint_seconds,
        restart_seconds=config.assumed.restart_seconds,
        write_seconds=config.assumed.write_seconds,
        queue_seconds=queue,
    )


def _episodes(
    out: Mapping[str, Sequence[OutOfService]],
    attempts: Sequence[Attempt],
    why: Mapping[Key, Attribution],
) -> list[Episode]:
    """Return the faults of nodes: times out of service, and failures of jobs that name one.

    A failure for which its node is taken out of service is one fault.
    """
    found = [Episode(*each[:3]) for of_node in out.values() for each in of_node]
    for each in attempts:
        attribution = why[each.key]
        node, end = attribution.node, each.end
        if not (attribution.is_failure_of_infrastructure and node):
            continue
        if not any(
            time_out.start - BEFORE_SECONDS
            <= end
            <= max(time_out.start + AFTER_SECONDS, time_out.end or math.inf)
            for time_out in out.get(node, ())
        ):
            found.append(Episode(node, end, end))
    return sorted(found, key=lambda episode: episode.start)


def _missing(attempts: Sequence[Attempt], window: Window, config: ReliabilityConfig) -> list[str]:
    found = []
    if config.prometheus is None:
        found.append(
            "there is no prometheus in the settings: causes are the scheduler's word alone, and a "
            "job that ended with an error is nobody's failure"
        )
    if not config.nodes:
        found.append(
            "nodes is not set: the fleet is the nodes that were seen in jobs and events, and one "
            "that was never used is not counted"
        )
    if window.days < 7 * _WEEKS:
        found.append(
            f"{window.days:g} days are less than {_WEEKS} weeks: intervals of rates do not know of "
            "bursts and are too narrow where failures come in them"
        )
    wrong = [each for each in attempts if each.notes]
    if wrong:
        found.append(
            f"times of {len(wrong)} attempts cannot be and were mended, first of job "
            f"{wrong[0].row.job_id}: {wrong[0].notes[0]}"
        )
    cut = sum(each.start is not None and each.start < window.start for each in attempts)
    if cut:
        found.append(f"{cut} attempts began before the window: what came before them is not known")
    return found
