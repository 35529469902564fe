"""Signs that so many nodes show that what they share has failed, and none of them.

Nodes fail by themselves one at a time; what hangs on five of them at once hangs for what the five
have in common: the storage, the fabric, the software or the setting that reached all. A sign of
hardware may meet two nodes in one failure. One that software can cause, as tasks that hang or a
driver that does not answer, is a node's own only as long as most of the job is without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import by_node
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation, Rule

# More nodes than these do not fail in the same way at the same moment: what they share does. As
# many as Aegis isolates for distributed errors.
MOST_NODES = 2
# Where software can be the reason, of the nodes of a job. Chosen: one node of up to five, two of
# six and more.
_MOST_SHARE = 1 / 3


def most_nodes(rule: Rule, job: JobPlaces) -> int:
    """Return on how many nodes a sign still means each of them."""
    if rule.domain == "hardware":
        return MOST_NODES
    return max(1, min(MOST_NODES, int(_MOST_SHARE * len(job.nodes))))


def fan_outs(
    observations: Iterable[Observation], job: JobPlaces, changes: Iterable[Observation] = ()
) -> dict[str, list[Observation]]:
    """Return the signs that too many nodes show for one of them to be the reason, by rule.

    What names its node by itself and is of hardware, as a GPU that fell off the bus, is never one:
    it happened to that node, whatever happened to others. What lasts and is of software, as a
    driver that does not fit, comes from what was changed: of nodes that were changed alike, those
    that do not show it yet count with those that do.

    Parameters
    ----------
    observations
        The signs.
    job
        Who is who.
    changes
        What was done to nodes before.
    """
    changed = _by_change(changes, job)
    by_rule: dict[str, list[Observation]] = {}
    for each in observations:
        by_rule.setdefault(each.rule.name, []).append(each)
    return {name: seen for name, seen in by_rule.items() if _too_many(seen, job, changed)}


def _by_change(changes: Iterable[Observation], job: JobPlaces) -> list[set[str]]:
    by_name: dict[str, list[Observation]] = {}
    for each in changes:
        by_name.setdefault(each.evidence.name, []).append(each)
    return [set(by_node(same, job)) for same in by_name.values()]


def _too_many(seen: Sequence[Observation], job: JobPlaces, changed: Sequence[set[str]]) -> bool:
    rule = seen[0].rule
    if rule.role == "critical" and rule.domain == "hardware":
        return False
    nodes = set(by_node(seen, job))
    if (rule.domain, rule.duration) == ("software", "permanent"):
        nodes = nodes.union(*(alike for alike in changed if nodes <= alike))
    return len(nodes) > most_nodes(rule, job)
