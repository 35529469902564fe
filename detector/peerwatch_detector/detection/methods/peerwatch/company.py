"""Whether one sign against a node of a waiting job is enough: it needs company, or time.

While a job pauses for a healthy reason, some metric of some node always begins to differ a little.
A node is flagged early only if two metrics with different causes speak against it for as long as
one alone would have to, or its own rank does; what shows in metrics of one cause alone is given
time, in which most healthy pauses end. So is whatever begins with a rest of all GPUs: then a node
that is late rests on in all its metrics.

A job whose processes end right out of a wait has failed of what it waited for: then there is no
more time, and a sign needs no more than its own length. Healthy jobs end, too, but they work until
then, or after a rest: their last checkpoint. Those that are started anew may end in a short pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.config.methods import PeerwatchConfig

if TYPE_CHECKING:
    from peerwatch_detector.detection.methods.peerwatch.evidence import Evidence
    from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep

# What a rank says of itself: no other program and no other node moves it.
_OWN_WORD = frozenset({"heartbeat_age"})
# A sign this large, in minimum effect sizes, is believed as soon as the wait is long: by then signs
# are shown 1 / peerwatch.relaxed as large, so it was nearly twice the minimum before.
_STRONG = 3.0
# Below this, in minimum effect sizes, a sign is hardly more than what makes it one: healthy nodes
# wander that far now and then.
_WEAK = 1.5


def cause_of(metric: MetricConfig) -> str:
    """Return what metrics that move together for one reason have in common.

    All metrics of GPUs fall when a GPU has nothing to do, whatever the reason, and all of the
    fabric change with congestion; those of the host have causes of their own.
    """
    if metric.kind == "network":
        return "network"
    return "gpu" if metric.scope == "gpu" else metric.name


def has_company(signs: Sequence[Evidence], step: JobStep, settings: PeerwatchConfig) -> bool:
    """Whether signs against one node are enough though the job waits since a moment ago.

    Parameters
    ----------
    signs
        Those that may explain the wait.
    step
        The job.
    settings
        How long signs that agree must last.
    """
    if any(sign.metric.name in _OWN_WORD for sign in signs):
        return True
    # Where only steps are counted, a checkpoint or an evaluation looks like a wait.
    if step.phase.counted or step.halted_seconds > 0:
        return False
    # Where a phase of the job begins or ends, a node whose samples are some seconds ahead or late
    # differs in all metrics, for as long as the level that is compared remembers it.
    if not step.waits_long(settings.fast_pair_seconds):
        return False
    # Who computes while the others wait is late, as after an evaluation: only time tells more.
    return _agree((sign for sign in signs if not sign.works_on), settings.fast_pair_seconds)


def _agree(signs: Iterable[Evidence], seconds: float) -> bool:
    """Whether signs of more than one cause have lasted for so long."""
    return len({cause_of(sign.metric) for sign in signs if sign.seconds >= seconds}) > 1


def outlived_the_job(
    item: Evidence, signs: Sequence[Evidence], step: JobStep, settings: PeerwatchConfig
) -> bool:
    """Whether a job that hung has ended while a sign stood against a node.

    There is no more time, so a sign needs its length alone: ``fast_seconds``, of a hang that lasted
    as long, or ``fast_pair_seconds`` where it is strong or another cause speaks for it. Where the
    processes end, a node that is a second or two ahead differs from the others in all its metrics.

    Parameters
    ----------
    item
        The sign.
    signs
        All against its node that may explain the wait.
    step
        The job.
    settings
        The lengths.
    """
    pair = settings.fast_pair_seconds
    needed = settings.fast_seconds
    # Who computes while the others wait differs from them by all that a wait is less than work, so
    # the size tells nothing, and a late rank has no more time than another: see ``has_company``.
    if not item.works_on:
        others = (sign for sign in signs if not sign.works_on)
        if item.strength >= _STRONG or _agree((item, *others), pair):
            needed = pair
    # That it has not been seen for a step or two (continuity.gap_seconds) says nothing: the levels
    # of those are means of before and after the end.
    return settings.ended and step.ended_after(needed) and item.seconds >= needed


def had_time(item: Evidence, step: JobStep, settings: PeerwatchConfig) -> bool:
    """Whether the wait has outlasted its healthy reasons, so that a sign needs no company."""
    patience = settings.patience_seconds
    if item.metric.kind == "own":
        patience = max(patience, step.phase.pause_seconds)
    if item.strength < _STRONG:
        patience += settings.fast_seconds
    return step.waits_long(patience)


def is_weak_alone(item: Evidence, signs: Sequence[Evidence], seconds: float) -> bool:
    """Whether a sign is so small that a loss of progress may just fall together with it.

    Parameters
    ----------
    item
        The sign.
    signs
        All against its node: one of another cause that has lasted as long is company.
    seconds
        How long a sign must last that is not.
    """
    if item.strength >= _WEAK or item.metric.name in _OWN_WORD:
        return False
    return not _agree((item, *signs), seconds)
