"""What the responder publishes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, get_args

from peerwatch_common.logs import one_line
from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_responder.policy.limit_guards import nodes_of_last_hour
from peerwatch_responder.policy.plan import Reason
from peerwatch_responder.policy.state import UNDER_WAY

if TYPE_CHECKING:
    from peerwatch_responder.policy.state import Response
    from peerwatch_responder.run.responder import Responder

_SOURCE = "the responder's journal"

ACTIONS = MetricSpec(
    "peerwatch_response_actions_total",
    "counter",
    "1",
    ("action", "target", "result"),
    "Actions by name, by what they are about (node) and by the status that their response ended "
    "with: done, failed, stuck, passed, undone.",
    _SOURCE,
)
DECISIONS = MetricSpec(
    "peerwatch_response_decisions_total",
    "counter",
    "1",
    ("decision", "reason"),
    "Alerts that were decided upon, by what was decided (act, wait, refuse, ignore) and why.",
    "the responder's decisions since its start",
)
REJECTED = MetricSpec(
    "peerwatch_response_webhooks_rejected_total",
    "counter",
    "1",
    ("reason",),
    "Webhooks that were not taken, by why: payload, token.",
    "the responder's server since its start",
    not_drawn="for queries and alerts of your own",
)
WAITING = MetricSpec(
    "peerwatch_response_waiting",
    "gauge",
    "1",
    ("reason",),
    "Alerts that a rule matches and that the newest decision keeps waiting, by what stands against "
    "them, such as a budget (budget_job, budget_hour, budget_concurrent).",
    "the newest decision",
)
PENDING = MetricSpec(
    "peerwatch_response_pending",
    "gauge",
    "1",
    (),
    "Responses that are under way.",
    _SOURCE,
)
STUCK = MetricSpec(
    "peerwatch_response_stuck",
    "gauge",
    "1",
    (),
    "Responses that ended between two steps and of which nobody has put the node back: a person "
    "is needed.",
    _SOURCE,
)
STUCK_INFO = MetricSpec(
    "peerwatch_response_stuck_info",
    "gauge",
    "1",
    ("node", "job_id", "key"),
    "1 for each of them, with the node and the job that it is about, and the identity by which it "
    "is undone.",
    _SOURCE,
)
UNDER_WAY_INFO = MetricSpec(
    "peerwatch_response_under_way_info",
    "gauge",
    "1",
    ("node", "job_id", "key"),
    "1 for each response that began within 5 minutes and has not ended: the page about its node "
    "waits for it.",
    _SOURCE,
)
ENDED_INFO = MetricSpec(
    "peerwatch_response_ended_info",
    "gauge",
    "1",
    ("node", "job_id", "key", "result", "summary"),
    "1 for each response that ended within an hour, by how (done, failed, passed: the node "
    "passed its checks and stays), with what was done; not when a person has put the node back.",
    _SOURCE,
)
OUT = MetricSpec(
    "peerwatch_response_nodes_out",
    "gauge",
    "1",
    (),
    "Nodes that are out of work because of responses.",
    _SOURCE,
)
BUDGET = MetricSpec(
    "peerwatch_response_budget_remaining",
    "gauge",
    "1",
    ("budget",),
    "How many nodes may still be taken out: within an hour (hour), at once (concurrent; of the "
    "newest decision).",
    _SOURCE,
)
BREAKER = MetricSpec(
    "peerwatch_response_breaker_tripped",
    "gauge",
    "1",
    (),
    "1 while everything is stopped because too many nodes were wanted at once; a person resets it.",
    _SOURCE,
)
PAUSED = MetricSpec(
    "peerwatch_response_paused",
    "gauge",
    "1",
    (),
    "1 while a person has paused everything.",
    _SOURCE,
)
DRY_RUN = MetricSpec(
    "peerwatch_response_dry_run",
    "gauge",
    "1",
    (),
    "1 where all is decided and nothing is done.",
    "the settings",
)
SERVER_UP = MetricSpec(
    "peerwatch_response_server_up",
    "gauge",
    "1",
    ("server",),
    "Whether alertmanager, prometheus and the cluster could be asked for the newest decision; "
    "without an answer nothing is done.",
    "the newest decision",
)
SPECS = (
    *(ACTIONS, DECISIONS, REJECTED, WAITING, PENDING, STUCK, STUCK_INFO, OUT, BUDGET),
    *(BREAKER, PAUSED, DRY_RUN, SERVER_UP, UNDER_WAY_INFO, ENDED_INFO),
)

_ENDED = ("done", "failed", "stuck", "passed", "undone")
# A page waits no longer than this for a response. Chosen: at most so late does a person hear of a
# fault that a response does not end.
_UNDER_WAY_SECONDS = 300.0
# Chosen: a response's end is told even where Prometheus does not scrape for most of an hour.
_SHOWN_SECONDS = 3600.0
# As much as the history shows of a text.
_SUMMARY_CHARACTERS = 400
# Stuck has an alert of its own.
_SHOWN = ("done", "failed", "passed")


def families(responder: Responder, rejected: Counter[str], now: float) -> list[Family]:
    """Return all families.

    Parameters
    ----------
    responder
        The running one.
    rejected
        Webhooks that were not taken, by reason.
    now
        Unix seconds.
    """
    state, config = responder.state, responder.config
    responses = tuple(state.responses.values())
    # A counter never falls: what is undone had ended before.
    ended: Counter[tuple[str, str]] = Counter(
        (action, result)
        for each in responses
        for action in each.actions
        for result in {each.undone_from or each.status, each.status}
    )
    out = {(each.cluster, each.node) for each in responses if each.is_out}
    found = {spec.name: spec.family() for spec in SPECS}

    def gauge(spec: MetricSpec, value: float, *labels: str) -> None:
        found[spec.name].add_metric(labels, value)

    for action in sorted(responder.actions):
        for status in _ENDED:
            gauge(ACTIONS, ended[action, status], action, "node", status)
    for (verdict, reason), count in sorted(responder.decisions.items()):
        gauge(DECISIONS, count, verdict, reason)
    for why in ("payload", "token"):
        gauge(REJECTED, rejected[why], why)
    decisions = () if responder.plan is None else responder.plan.decisions
    waiting = Counter(each.reason for each in decisions if each.verdict == "wait")
    for reason in get_args(Reason):
        gauge(WAITING, waiting[reason], reason)
    gauge(PENDING, sum(each.status in UNDER_WAY for each in responses))
    stuck = [each for each in responses if each.status == "stuck" and each.returned_at is None]
    gauge(STUCK, len(stuck))
    for each in stuck:
        gauge(STUCK_INFO, 1, each.node, each.job_id, each.key)
    for each in responses:
        if each.status in UNDER_WAY and now - each.planned_at < _UNDER_WAY_SECONDS:
            gauge(UNDER_WAY_INFO, 1, each.node, each.job_id, each.key)
        elif each.status in _SHOWN and each.returned_at is None and _is_new(each, now):
            gauge(ENDED_INFO, 1, each.node, each.job_id, each.key, each.status, summary_of(each))
    gauge(OUT, len(out))
    hour = config.policy.budget.nodes_per_hour - len(nodes_of_last_hour(state, now))
    gauge(BUDGET, max(0, hour), "hour")
    gauge(BUDGET, max(0, responder.most_at_once - len(out)), "concurrent")
    gauge(BREAKER, state.tripped_at is not None)
    gauge(PAUSED, state.paused is not None)
    gauge(DRY_RUN, config.dry_run)
    for server in ("alertmanager", "prometheus"):
        if getattr(config, server) is not None:
            gauge(SERVER_UP, server not in responder.unknown, server)
    gauge(SERVER_UP, "cluster" not in responder.unknown, "cluster")
    return list(found.values())


def _is_new(response: Response, now: float) -> bool:
    return response.ended_at is not None and now - response.ended_at < _SHOWN_SECONDS


def summary_of(response: Response) -> str:
    """Return what a response did as a line, its steps in their order; else why it did nothing."""
    done = [f"{each.action}: {each.text}" for each in response.steps if each.is_done]
    text = one_line("; ".join(done) if response.status == "done" else response.text).rstrip(".")
    return text[:_SUMMARY_CHARACTERS] + "."
