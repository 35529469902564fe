"""One error that a log speaks of, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One error in one log.

    Parameters
    ----------
    signature, event_class
        What it is known by, and whose fault that is; empty where no signature knows it.
    meaning
        What happened, in a few words.
    text
        The line without prefixes, as it stands in the log.
    log, offset
        Which log of the job, and the byte in it.
    number
        The line, from 1; None where a part before it was not read.
    cascade
        Whether it follows from an earlier error.
    survived
        Whether the job finished steps after it.
    time
        When it was written (Unix time); None: the line does not say.
    rank, node
        Who wrote it, as far as that is known.
    peer
        Whom it complains about; empty: nobody.
    fields
        What else the line says, by name.
    """

    signature: str
    event_class: str
    meaning: str
    text: bytes
    log: int
    offset: int
    number: int | None = None
    cascade: bool = False
    survived: bool = False
    time: float | None = None
    rank: int | None = None
    node: str = ""
    peer: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
