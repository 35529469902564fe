"""What was done, in order, with its seconds; and whether it was right. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peerwatch_demo.stack.report import Event, Verdict, decisive

# What a step of the responder's is called in the table, by action.
_STEPS = {
    "check": "node checked",
    "slurm_drain": "node drained",
    "slurm_requeue": "job requeued",
    "slurm_exclude": "node excluded",
    "slurm_start": "job may start",
    "replace": "node replaced",
}
_WORDS = {
    "fault": "fault injected",
    "candidate": "candidate",
    "finding": "finding",
    "alert": "alert fires",
    "page": "page",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the table: what, when (Unix time), and in words."""

    what: str
    at: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Restart:
    """How the job went on.

    Parameters
    ----------
    at
        When it was first seen at work again, in Unix time.
    step
        The step of the checkpoint that it went on from.
    before
        The last step seen before the fault took it down.
    nodes
        Where it runs.
    """

    at: float
    step: int
    before: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the detector says that is wrong, and of which node."""

    at: float
    node: str
    text: str


def moments(
    events: Sequence[Event],
    diagnoses: Sequence[Diagnosis],
    response: Mapping[str, Any] | None,
    restart: Restart | None,
) -> list[Moment]:
    """Return the chain from the fault to the job at work, in order of time."""
    found = [
        Moment(_WORDS[each.kind], each.at, f"{each.node} {each.metric}".strip())
        for each in decisive(events)
    ]
    faulty = next((each.node for each in events if each.kind == "fault"), None)
    named = [each for each in diagnoses if found and each.node == faulty and each.at >= found[0].at]
    found += [Moment("diagnosis", each.at, f"{each.node} {each.text}") for each in named[:1]]
    if response is not None:
        found.append(Moment("decision", response["planned_at"], ", ".join(response["actions"])))
        found += [
            Moment(_STEPS.get(each["action"], each["action"]), each["at"], str(each["text"]))
            for each in response["steps"]
            if each["outcome"] == "done"
        ]
    if restart is not None:
        lost = max(0, restart.before - restart.step)
        text = f"from step {restart.step}; {lost} steps are done again"
        found.append(Moment("training goes on", restart.at, text))
    return sorted(found, key=lambda each: each.at)


def table(chain: Sequence[Moment]) -> str:
    """Return the chain as text, with the seconds since the fault and since the line above."""
    if not chain:
        return "nothing happened"
    rows = [("", "after the fault", "after the line above", "")]
    for previous, each in zip([None, *chain], chain, strict=False):
        since = "" if previous is None else f"{each.at - previous.at:.1f} s"
        rows.append((each.what, f"{each.at - chain[0].at:.1f} s", since, each.text))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{row[0].ljust(widths[0])}  {row[1].rjust(widths[1])}  {row[2].rjust(widths[2])}  "
        f"{row[3][:80]}".rstrip()
        for row in rows
    )


def verdict(
    faulty: str,
    responses: Sequence[Mapping[str, Any]],
    restart: Restart | None,
    out: str,
    paged: Collection[tuple[str, ...]],
) -> Verdict:
    """Say whether the faulty node, and no other, was taken out and the job went on.

    Parameters
    ----------
    faulty
        The node that the fault hit.
    responses
        What the responder did.
    restart
        How the job went on; None: it did not.
    out
        The word of what runs the job that the node is out; empty: it is not.
    paged
        The nodes of each page that came.
    """
    wrong = None
    if not responses:
        wrong = "the responder did nothing"
    elif {each["node"] for each in responses} != {faulty}:
        named = ", ".join(sorted({str(each["node"]) for each in responses}))
        wrong = f"the responder took out {named}"
    elif responses[0]["status"] != "done":
        wrong = f"the response ended as {responses[0]['status']}: {responses[0]['text']}"
    elif not out:
        wrong = f"{faulty} is not out"
    elif restart is None:
        wrong = "the job was not seen at work again"
    elif faulty in restart.nodes:
        wrong = f"the job runs on {faulty} again"
    elif restart.step == 0:
        wrong = "the job began anew, without a checkpoint"
    elif any(set(nodes) - {faulty} for nodes in paged):
        wrong = f"pages named {paged}"
    elif len(paged) != 1:
        wrong = f"{len(paged)} pages came instead of one"
    if wrong is not None:
        return Verdict(False, f"WRONG: {wrong}; faulty was {faulty}.")
    return Verdict(
        True,
        f"RIGHT: without a person, {faulty} is out, the job trains on without it from its last "
        "checkpoint, and one page tells so.",
    )
