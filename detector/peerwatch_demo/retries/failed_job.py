"""One job whose first attempt failed, and what each further one would do under any policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_demo.retries.reasons import Reason

# As the policy that retries whatever failed has it ("always, 3 times").
MOST_RETRIES = 3
# A transient fault is still there now and then; editorial.
_RECOVERS = 0.7
# Times until a failure scatter over three orders of magnitude; editorial.
_SPREAD = 1.2
# Attempts of one job are more alike; editorial.
_OWN_SPREAD = 0.2
# Jobs that go on from a checkpoint; editorial.
_CHECKPOINTS = 0.6
_SETUP = "".join(f"INFO preparing shard {number}\n" for number in range(20))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Parameters
    ----------
    succeeds
        Whether it ends well.
    gpu_seconds
        How long it ran until it failed; what a success takes would have been needed anyway.
    log
        What it wrote, if it failed.
    """

    succeeds: bool
    gpu_seconds: float
    log: str


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job and its attempts, the first of which failed.

    Parameters
    ----------
    name, reason
        The job, and why it failed.
    transient
        Whether a retry can succeed.
    attempts
        The first one and ``MOST_RETRIES`` more, as they would be.
    """

    name: str
    reason: str
    transient: bool
    attempts: tuple[Attempt, ...]


def failed_jobs(reasons: Sequence[Reason], count: int, seed: int) -> list[FailedJob]:
    """Return jobs with the mix of the reasons; the same seed gives the same jobs."""
    rng = np.random.default_rng(seed)
    shares = np.array([reason.trials for reason in reasons])
    drawn = rng.choice(len(reasons), size=count, p=shares / shares.sum())
    return [_job(f"job-{number}", reasons[each], rng) for number, each in enumerate(drawn)]


def _job(name: str, reason: Reason, rng: np.random.Generator) -> FailedJob:
    transient = bool(rng.random() < reason.transient)
    # The mean stays that of the reason.
    scale = reason.gpu_seconds * rng.lognormal(-(_SPREAD**2) / 2, _SPREAD)
    goes_on = bool(rng.random() < _CHECKPOINTS)
    own, step = int(rng.integers(1, 9)), 0
    # A failure that comes again has the same words each time.
    texts = reason.passing if transient else reason.texts
    form = str(rng.choice(np.array(texts, dtype=object)))
    attempts = []
    for number in range(MOST_RETRIES + 1):
        if transient:
            form = str(rng.choice(np.array(texts, dtype=object)))
        reached = int(50 * scale * (1 + rng.random())) if transient else int(50 * scale)
        step = step + reached if transient and goes_on else reached
        attempts.append(
            Attempt(
                succeeds=number > 0 and transient and bool(rng.random() < _RECOVERS),
                gpu_seconds=float(scale * rng.lognormal(-(_OWN_SPREAD**2) / 2, _OWN_SPREAD)),
                log=_log(form, step, own, rng),
            )
        )
    return FailedJob(name, reason.name, transient, tuple(attempts))


def _log(form: str, step: int, own: int, rng: np.random.Generator) -> str:
    steps = "".join(
        f"iteration {number}/ 100000 | loss {rng.random() * 3:.4f}\n"
        for number in range(max(1, step - 5), step + 1)
        if step
    )
    text = form.format(n=rng.integers(10_000, 99_999), m=rng.integers(10_000, 99_999), k=own)
    return f"{_SETUP}{steps}{text}\n"
