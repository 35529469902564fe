"""The root of a failure as verdicts, beside those of the diagnosers without contradiction."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause
from peerwatch_detector.diagnosis.root.text import pager_text
from peerwatch_detector.diagnosis.verdict import Action, Verdict

# What takes a node away.
_TAKING: frozenset[Action] = frozenset({"isolate", "replace", "drain"})


def root_verdicts(found: LiveRoot | None, named: Collection[str]) -> tuple[Verdict, ...]:
    """Return what a job failed of as verdicts: one of each class on each node.

    Parameters
    ----------
    found
        What was found; None if nothing stands against the job.
    named
        As of ``told_causes``.
    """
    if found is None:
        return ()
    known: dict[tuple[str, str], Verdict] = {}
    for cause in told_causes(found, named):
        for node in cause.nodes or ("",):
            known.setdefault((node, cause.symptom), _verdict(cause, node, found))
    return tuple(known.values())


def told_causes(found: LiveRoot, named: Collection[str]) -> tuple[Cause, ...]:
    """Return the causes that contradict nothing else that is shown of a job.

    Parameters
    ----------
    found
        What was found.
    named
        Nodes that are named otherwise, by findings or verdicts. That it is open whose fault
        something is, is not told beside them, unless it is they that are suspected.
    """
    return tuple(
        cause
        for cause in found.root.causes
        if cause.confidence != "undecided" or not named or set(named) == set(cause.nodes)
    )


def beside_root(verdicts: Iterable[Verdict], roots: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return verdicts of diagnosers with domains and actions that go with the root's.

    A diagnoser knows one kind of evidence, the root all of it: of a node that the root names, the
    root says what to do; no other node is taken away while it is sure, or almost.
    """
    decided = [root for root in roots if root.confidence != "undecided"]
    if not decided:
        return tuple(verdicts)
    by_node = {root.node: root for root in reversed(decided)}
    return tuple(_subordinate(each, by_node.get(each.node)) for each in verdicts)


def _subordinate(verdict: Verdict, root: Verdict | None) -> Verdict:
    if verdict.node and root is not None:
        domain = verdict.domain if root.domain == "unknown" else root.domain
        return replace(verdict, domain=domain, action=root.action)
    return replace(verdict, action="inspect") if verdict.action in _TAKING else verdict


def _verdict(cause: Cause, node: str, found: LiveRoot) -> Verdict:
    return Verdict(
        found.job_id,
        node,
        None,
        cause.symptom,
        cause.domain,
        cause.confidence,
        cause.action,
        pager_text(cause, found.root, found.places),
        (),
        cause.time,
    )
