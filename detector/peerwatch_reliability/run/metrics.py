"""What the program publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec

if TYPE_CHECKING:
    from peerwatch_reliability.run.service import Service

_SOURCE = "the scheduler's accounting and Prometheus, over window_days"

ETTR = MetricSpec(
    "peerwatch_reliability_ettr_ratio",
    "gauge",
    "ratio",
    ("size_class", "bound"),
    "Effective training time ratio of the window's attempts, by size of job (GPUs, up to) and all "
    "together weighted by GPUs; bound is expected, low or high, which differ where nobody measured "
    "checkpoints and restarts.",
    _SOURCE,
)
TARGET = MetricSpec(
    "peerwatch_reliability_ettr_target_ratio",
    "gauge",
    "ratio",
    (),
    "The ETTR below which an alert opens a ticket.",
    "ettr_target_ratio of the settings",
)
EXPECTED = MetricSpec(
    "peerwatch_reliability_ettr_expected_ratio",
    "gauge",
    "ratio",
    ("checkpoint_minutes",),
    "ETTR that the largest job can expect with this checkpoint interval, by the window's rate of "
    "failures (formula C).",
    _SOURCE,
)
MTTF = MetricSpec(
    "peerwatch_reliability_mttf_seconds",
    "gauge",
    "seconds",
    ("size_class", "bound"),
    "Mean time to failure of jobs of a size (GPUs, up to): value, low and high of its "
    "95 % interval, and line, what the rate of all nodes together says of that size. What is not "
    "known is absent.",
    _SOURCE,
)
RATE = MetricSpec(
    "peerwatch_reliability_failures_per_node_day",
    "gauge",
    "1",
    ("bound",),
    "Failures of the infrastructure per node-day: value, and the bounds of its 95 % interval.",
    _SOURCE,
)
CAUSE_RATE = MetricSpec(
    "peerwatch_reliability_cause_failures_per_node_day",
    "gauge",
    "1",
    ("cause", "bound"),
    "Failures of the infrastructure per node-day by what failed: value, and the bounds of its 95 % "
    "interval. A cause without a failure is absent.",
    _SOURCE,
)
COMPONENT = MetricSpec(
    "peerwatch_reliability_component_mttf_seconds",
    "gauge",
    "seconds",
    ("component", "bound"),
    "Mean time to failure of a single gpu, network_port or host: value, low and high of its 95 % "
    "interval. What is not known is absent.",
    _SOURCE,
    not_drawn="it changes over months: the report has it",
)
FAILURES = MetricSpec(
    "peerwatch_reliability_failures_total",
    "counter",
    "1",
    ("size_class", "cause"),
    "Attempts that the infrastructure failed, since the program started and in the window before.",
    _SOURCE,
)
LOSS = MetricSpec(
    "peerwatch_reliability_goodput_loss_gpu_seconds_total",
    "counter",
    "seconds",
    ("cause", "order"),
    "GPU-seconds lost to failures: order first is that of the failed attempts, second that of the "
    "ones that were preempted when they started again.",
    _SOURCE,
)
LOST_WORK = MetricSpec(
    "peerwatch_reliability_lost_work_seconds_total",
    "counter",
    "seconds",
    (),
    "Expected work of jobs that incidents destroyed; over failures it is that of one incident.",
    _SOURCE,
)
RECOVERY = MetricSpec(
    "peerwatch_reliability_recovery_seconds_total",
    "counter",
    "seconds",
    (),
    "Time from the end of failed attempts until the next one made progress.",
    _SOURCE,
)
LEMON_SCORE = MetricSpec(
    "peerwatch_lemon_score",
    "gauge",
    "1",
    ("node",),
    "Faults that are expected of the node in 28 days (posterior mean).",
    _SOURCE,
)
LEMON = MetricSpec(
    "peerwatch_lemon",
    "gauge",
    "1",
    ("node", "reason"),
    "1 for every node that fails again and again; reason is the first signal in which it is above "
    "95 % of the fleet, or episodes.",
    _SOURCE,
)
MISSING = MetricSpec(
    "peerwatch_reliability_missing",
    "gauge",
    "1",
    (),
    "How many things the numbers suffer from; the report names each.",
    _SOURCE,
)
LAST_SUCCESS = MetricSpec(
    "peerwatch_reliability_last_success_timestamp_seconds",
    "gauge",
    "seconds",
    (),
    "When the books were last made (Unix time); 0: never.",
    "run",
    not_drawn="for alerts of your own",
)
SPECS = (
    *(ETTR, TARGET, EXPECTED, MTTF, RATE, CAUSE_RATE, COMPONENT, FAILURES, LOSS, LOST_WORK),
    *(RECOVERY, LEMON_SCORE, LEMON, MISSING, LAST_SUCCESS),
)


def families(service: Service) -> list[Family]:
    """Return all families; of books that were never made only when that was."""
    found = {spec.name: spec.family() for spec in SPECS}

    def add(spec: MetricSpec, value: float | None, *labels: str) -> None:
        if value is not None:
            found[spec.name].add_metric(labels, value)

    add(LAST_SUCCESS, service.made_at or 0.0)
    add(TARGET, service.config.ettr_target_ratio)
    for (size, cause), count in sorted(service.totals.failures.items()):
        add(FAILURES, count, size, cause)
    for (cause, order), seconds in sorted(service.totals.lost.items()):
        add(LOSS, seconds, cause, order)
    add(LOST_WORK, service.totals.lost_work)
    add(RECOVERY, service.totals.recovery)
    document = service.document
    if document is None:
        return list(found.values())
    bounds = {"expected": "value", "low": "low", "high": "high"}
    for size, ettr in {**document["ettr_by_size"], "all": document["ettr"]}.items():
        for bound, key in bounds.items():
            add(ETTR, ettr[key], size, bound)
    for each in (document["expected"] or {}).get("what_if", ()):
        add(EXPECTED, each["ettr"], str(each["checkpoint_minutes"]))
    mean_times = [
        *(
            (MTTF, each["gpus"], {**each["hours"], "line": each["line_hours"]})
            for each in document["mttf_by_size"]
        ),
        *((COMPONENT, name, each["hours"] or {}) for name, each in document["components"].items()),
    ]
    for spec, label, hours in mean_times:
        for bound in ("value", "low", "high", "line"):
            value = hours.get(bound)
            add(spec, value and 3600 * value, label, bound)
    rates = [
        (RATE, (), document["failures_per_1000_node_days"] or {}),
        *((CAUSE_RATE, (cause,), of_cause) for cause, of_cause in document["causes"].items()),
    ]
    for spec, labels, rate in rates:
        for bound in ("value", "low", "high"):
            value = rate.get(bound)
            add(spec, None if value is None else value / 1000, *labels, bound)
    for score in service.scores:
        add(LEMON_SCORE, 28 * score.mean, score.node)
    for each in document["lemons"]["flagged"]:
        add(LEMON, 1, each["node"], next(iter(each["reasons"]), "episodes"))
    add(MISSING, len(document["missing"]))
    return list(found.values())
