"""All that is known beforehand: signatures, what each advises, and ways to exit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_common.signatures.matcher import MatchTable
from peerwatch_common.signatures.signature_set import load_signatures
from peerwatch_responder.retry.knowledge.exits import Exits, shipped_exits
from peerwatch_responder.retry.knowledge.forms import Form, shipped_forms
from peerwatch_responder.retry.knowledge.signature_advice import (
    SignatureAdvice,
    load_signature_advice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known beforehand.

    Parameters
    ----------
    table
        The signatures of jobs' logs and of the kernel's.
    advice
        What each advises.
    exits
        Ways to exit.
    forms
        Forms that lines of failures have.
    max_retries
        How often a job is retried without progress where nothing is known of its failure.
    backoff_seconds
        How long to wait before the first retry with back-off; each further one waits twice as
        long.
    """

    table: MatchTable
    advice: SignatureAdvice
    exits: Exits
    forms: tuple[Form, ...] = ()
    max_retries: int = 2
    backoff_seconds: float = 300.0


def load_knowledge(
    signatures: Sequence[Path] = (),
    advice: Sequence[Path] = (),
    max_retries: int = 2,
    backoff_seconds: float = 300.0,
) -> Knowledge:
    """Return what ships with Peerwatch, and the user's own files of signatures and of advice.

    Raises
    ------
    ConfigError
        With every mistake in the files.
    """
    known = load_signatures(signatures)
    ids = {each.id for each in known.signatures}
    return Knowledge(
        MatchTable(known),
        load_signature_advice(ids, advice),
        shipped_exits(),
        shipped_forms(),
        max_retries,
        backoff_seconds,
    )
