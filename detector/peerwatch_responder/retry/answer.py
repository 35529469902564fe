"""The advice on a failed job: what to do, why, how sure, and the lines that decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["retry", "retry_elsewhere", "retry_with_backoff", "do_not_retry", "ask_user"]
# Which step of the order decided.
Reason = Literal[
    "correction",
    "signature",
    "exit",
    "form",
    "history",
    "diagnosis",
    "model",
    "unknown",
    "no_failure",
    "no_log",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
REASONS: tuple[Reason, ...] = get_args(Reason)
RETRIES: frozenset[Kind] = frozenset({"retry", "retry_elsewhere", "retry_with_backoff"})

# What `advise` ends with, for schedulers; 1 and 2 are errors of the program and of its flags.
EXIT_STATUS: dict[Kind, int] = {
    "retry": 0,
    "retry_elsewhere": 10,
    "retry_with_backoff": 11,
    "do_not_retry": 20,
    "ask_user": 21,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log, quoted as evidence.

    Parameters
    ----------
    log
        Where it stands.
    number
        The line in that log, from 1; None where a part before it was not read.
    text
        Without prefixes, and without what is private.
    rank, node
        Who wrote it, as far as that is known.
    """

    log: str
    number: int | None
    text: str
    rank: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Before:
    """What became of an earlier attempt with the same root.

    Parameters
    ----------
    time
        When it was assessed, in Unix seconds.
    advice
        What was advised then.
    step
        The last step that it finished; None: unknown.
    """

    time: float
    advice: Kind
    step: int | None


@dataclass(frozen=True, slots=True)
class RetryAdvice:
    """What to do with a failed job.

    Parameters
    ----------
    kind
        Start it again, elsewhere, later; leave it; ask its owner.
    reason
        Which step of the order decided.
    text
        Why, as a sentence.
    confidence
        0 to 1; below 0.5 it is little more than a guess.
    root
        The line that the job failed of; None: none was found.
    lines
        Those that decided; a stop has at least one.
    event_class
        Of the root, as docs/logs.md has them; empty: unknown.
    signature
        Of the root; empty: none.
    isolate
        Nodes, addresses or ranks that the next attempt should do without.
    wait_seconds
        With ``retry_with_backoff``: how long to wait.
    fingerprint
        What the same failure has in common over attempts; empty: there is no root.
    job, attempt
        The job, as the history knows it, and which run of it this is.
    step
        The last step that it finished; None: unknown.
    cascades
        How many lines followed from others, by signature.
    before
        Earlier attempts of the job with the same root, the newest first.
    notes
        What to know about this advice, such as parts that were not read.
    """

    kind: Kind
    reason: Reason
    text: str
    confidence: float
    root: Line | None = None
    lines: tuple[Line, ...] = ()
    event_class: str = ""
    signature: str = ""
    isolate: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    fingerprint: str = ""
    job: str = ""
    attempt: str = ""
    step: int | None = None
    cascades: dict[str, int] = field(default_factory=dict)
    before: tuple[Before, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "do_not_retry" and not self.lines:
            raise ValueError("a stop quotes the lines that decided")
