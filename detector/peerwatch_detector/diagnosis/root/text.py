"""A cause as sentences: what to do and why, in the order in which an operator asks."""

from __future__ import annotations

from collections.abc import Mapping

from peerwatch_detector.config.titles import finding_words
from peerwatch_detector.diagnosis.root.algorithm.algorithm import Root
from peerwatch_detector.diagnosis.root.algorithm.distributed import peer_of
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, names
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation
from peerwatch_detector.diagnosis.verdict import Action, Confidence

# What a page or a table shows of a sentence; a label may be longer. Chosen: five lines of 100.
_MOST_CHARACTERS = 500
_HOW_LIKELY: Mapping[Confidence, str] = {
    "sure": "Almost certain.",
    "likely": "Likely.",
    "undecided": "Undecided.",
}
# How likely it is, the finding says that the suspicion rests on.
_SUSPICION = "As likely as its finding says; a check of the node decides."


def summary_text(cause: Cause, root: Root, job: JobPlaces) -> str:
    """Return one sentence: what to do, what happened, and what followed."""
    return f"{_order(cause)}: {_subject(cause, root)}{_consequence(cause, root, job)}."


def pager_text(cause: Cause, root: Root, job: JobPlaces) -> str:
    """Return ``summary_text`` with how sure it is, and what was missing where it is not.

    Returns
    -------
    str
        At most ``_MOST_CHARACTERS``.
    """
    # Of a job that goes on nothing is missing in its logs.
    says_all = cause.confidence == "sure" or (root.works and cause.is_suspicion)
    missing = "" if says_all else " ".join(root.missing)
    how_likely = _SUSPICION if cause.is_suspicion else _HOW_LIKELY[cause.confidence]
    text = f"{summary_text(cause, root, job)} {how_likely} {missing}".rstrip()
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def would_change(cause: Cause) -> str:
    """Return what would lead to another answer."""
    cases = (
        (
            cause.is_suspicion,
            f"a check of {names(cause.nodes)}: one that fails is the second sign, one that passes "
            "clears it",
        ),
        (cause.confidence == "undecided", "the results of the checks"),
        (bool(cause.place), "an error of one of its nodes that the others do not show"),
        (cause.domain == "none", "an error before the scheduler's decision"),
        (
            cause.domain == "user",
            "the same error in another job on the same GPU, or a critical error of a node before",
        ),
        (not cause.nodes, "the same failure with that storage in order"),
        (
            cause.main.rule.role == "critical",
            "a repair of the node since, or the same error on more than two nodes at once",
        ),
    )
    otherwise = "a critical error of another node, or a check of this node that passes"
    return next((text for applies, text in cases if applies), otherwise)


_ORDERS: Mapping[Action, str] = {
    "isolate": "Isolate {who} and restart",
    "replace": "Isolate {who}, restart, and replace the part",
    "drain": "Drain {who} when the job ends",
    "restart": "Restart the job; isolate nobody",
    "ask": "Ask the owner of the job; isolate nobody",
    "none": "Nothing to do",
    "inspect": "Examine {who} first",
}


def _order(cause: Cause) -> str:
    if cause.place:
        return f"Examine {cause.place} before a restart"
    if cause.action == "inspect" and not cause.nodes:
        return "Run checks before a restart; isolate nobody"
    if cause.action == "restart" and cause.nodes:
        return f"Restart the job, and examine {names(cause.nodes)}"
    return _ORDERS[cause.action].format(who=names(cause.nodes))


def _subject(cause: Cause, root: Root) -> str:
    """Return what happened, without the node where the order has named it."""
    main, rule = cause.main, cause.main.rule
    if open_question := _open_question(cause, root):
        return open_question
    if cause.place:
        if main.evidence.kind == "reach":
            return f"{_pairs(cause)} lose packets to or from there"
        return f"{_many(cause)} ({shown(main)})"
    if cause.nodes and rule.role in ("waiting", "broken"):
        return "its connections failed before all others"
    who, seen = _who(cause) if not cause.nodes else _part(main), shown(main)
    # "has a process that is stopped" needs no "(stopped)".
    return f"{who} {rule.says}" + ("" if rule.says.endswith(f" {seen}") else f" ({seen})")


def _open_question(cause: Cause, root: Root) -> str:
    """Return what is known where it is open whose fault it is; empty where something is said."""
    sign = shown(cause.main)
    if cause.is_suspicion:
        job = "the job goes on" if root.works else "the job stands"
        return f"{job}, and of all nodes only this one differs from its peers ({sign})"
    if cause.confidence != "undecided" or cause.place or len(cause.nodes) == 1:
        return ""
    if cause.nodes:
        return f"they complain about each other, and nobody else does ({sign})"
    return f"the job stands, and it is open why (first sign: {sign})"


def _many(cause: Cause) -> str:
    nodes = {each.evidence.node for each in cause.speaks_for}
    if len(nodes) == 1:
        return f"only {nodes.pop()} shows it so far"
    return f"{len(nodes)} nodes that stand there show the same"


def _pairs(cause: Cause) -> str:
    reached = [each.evidence for each in cause.speaks_for if each.evidence.kind == "reach"]
    pairs = {frozenset((each.node, each.peer_node)) for each in reached}
    return "1 pair of nodes" if len(pairs) == 1 else f"{len(pairs)} pairs of nodes"


def _part(main: Observation) -> str:
    """Return what of the node it is."""
    evidence = main.evidence
    if evidence.kind in ("xid", "gpu"):
        return f"GPU {evidence.gpu}" if evidence.gpu else "a GPU"
    return "it" if evidence.rank is None else f"rank {evidence.rank}"


def _who(cause: Cause) -> str:
    same = [each for each in cause.speaks_for if each.rule is cause.main.rule]
    ranks = {each.evidence.rank for each in same} - {None}
    if len(ranks) == 1:
        node = cause.main.evidence.node
        return f"rank {ranks.pop()}" + (f" on {node}" if node else "")
    if ranks:
        return f"{len(ranks)} ranks"
    nodes = {each.evidence.node for each in same} - {""}
    return f"node {nodes.pop()}" if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else "it"


def shown(each: Observation) -> str:
    """Return what was observed in a few words: "XID 79", "link down of mlx5_0"."""
    evidence = each.evidence
    if evidence.kind in ("xid", "sxid"):
        return f"{evidence.kind.upper()} {evidence.name}"
    where = f" of {evidence.device}" if evidence.device else ""
    if evidence.kind == "finding":
        return f"{finding_words(evidence.name)}{where}"
    return f"{evidence.name.replace('_', ' ')}{where}"


def _consequence(cause: Cause, root: Root, job: JobPlaces) -> str:
    """Return how long before how many ranks lost their connection; empty if none did."""
    if not cause.nodes:
        return ""
    after = [each for each in root.episode.of("waiting", "broken") if each.time >= cause.time]
    about = [each for each in after if peer_of(each.evidence, job) in cause.nodes]
    chosen, what = (about, "to it") if about else (after, "")
    if not chosen:
        return ""
    ranks = {each.evidence.rank for each in chosen} - {None}
    nodes = {each.evidence.node for each in chosen} - {""}
    count = f"{len(ranks)} rank" if ranks else f"{len(nodes)} node"
    many = "s" if len(ranks or nodes) != 1 else ""
    lost = "lost their connection" if many else "lost its connection"
    if all(each.rule.role == "waiting" for each in chosen):
        lost, what = "ran into a time-out", ""
    before = _duration(chosen[0].time - cause.time)
    return f", {before} before {count}{many} {lost}{' ' + what if what else ''}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
