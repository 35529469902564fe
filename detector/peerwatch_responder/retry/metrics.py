"""What is published about advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_responder.retry.answer import KINDS, REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping

ADVICE = MetricSpec(
    "peerwatch_retry_advice_total",
    "counter",
    "1",
    ("advice", "reason"),
    "Advice on failed jobs, of the responder and of every `advise` with the same history: what "
    "was advised (retry, retry_elsewhere, retry_with_backoff, do_not_retry, ask_user), and what "
    "decided it (correction, signature, exit, history, diagnosis, form, model, unknown, "
    "no_failure, no_log).",
    "the history of advice",
    not_drawn="for queries and alerts of your own; each advice is for one job",
)
SPECS = (ADVICE,)


def families(counts: Mapping[tuple[str, str], int]) -> list[Family]:
    """Return the families, with a series for each advice and reason that was ever given."""
    family = ADVICE.family()
    for kind in KINDS:
        for reason in REASONS:
            count = counts.get((kind, reason), 0)
            if count:
                family.add_metric((kind, reason), count)
    return [family]
