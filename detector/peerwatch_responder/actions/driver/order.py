"""What a training driver is told, by whichever way, and what its answer means.

Minder's driver blocks a node and evicts; MegaScale's pauses the job, checks, replaces and restarts.
An order has one identity over all its tries, so that a driver can keep from doing it twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from peerwatch_responder.action import ActionOptions, AmbiguousError, RejectedError

if TYPE_CHECKING:
    from peerwatch_responder.action import Target

Want = Literal["checkpoint", "pause", "replace", "restart", "resume"]
# Of the order's format, counted from 1.
VERSION = 1
# Chosen: an outcome and a message have some hundred bytes.
MAX_ANSWER_BYTES = 65_536


class DriverOptions(ActionOptions):
    """Settings of every order to a driver."""

    want: Want = Field(description="What the driver is told to do.")
    undo: Want | None = Field(
        default=None, description="What it is told when the response is undone; null: nothing."
    )
    deadline_seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="How long it may take."
    )


def starts_again(options: DriverOptions) -> bool:
    """Whether the job runs anew after the order: a pause or a checkpoint ends no run."""
    return options.want in {"replace", "restart"}


def identity(target: Target, want: str, step: str) -> str:
    """Return what identifies an order over all of its tries."""
    return f"{target.key}-{step}-{want}"


def body_of(target: Target, want: str, order: str, deadline_seconds: float) -> bytes:
    """Return an order as JSON.

    Parameters
    ----------
    target
        Whom it is about.
    want
        What is wanted.
    order
        Its identity.
    deadline_seconds
        How long it may take.
    """
    labels = target.labels
    finding = {name: labels[name] for name in ("alertname", "metric", "method") if name in labels}
    content = {
        "version": VERSION,
        "action_id": order,
        "want": want,
        "cluster": target.cluster,
        "job_id": target.job_id,
        "node": target.node,
        "gpus": [labels["gpu"]] if labels.get("gpu") else [],
        "finding": {**finding, "since": target.starts_at},
        "reason": target.reason,
        "deadline_seconds": deadline_seconds,
    }
    return json.dumps(content).encode()


def understood(answer: bytes) -> str:
    """Return what a driver says that it has done.

    Raises
    ------
    RejectedError
        If it says that it has not, and will not.
    AmbiguousError
        If it says neither.
    """
    try:
        content: Any = json.loads(answer[: MAX_ANSWER_BYTES + 1])
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise AmbiguousError("The driver's answer is no JSON object; whether it acted is unknown.")
    outcome, message = content.get("outcome"), str(content.get("message", ""))[:500]
    if outcome == "rejected":
        raise RejectedError(f"The driver rejects it: {message or 'without a reason'}.")
    if outcome != "done":
        raise AmbiguousError(f"The driver's answer has outcome {str(outcome)[:50]!r}, not done.")
    step = content.get("checkpoint_step")
    return (
        "done"
        + (f" at step {step}" if isinstance(step, int) else "")
        + (f": {message}" if message else "")
    )
