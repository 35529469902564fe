"""What one log signature is: the text of an error, and what it says about whose fault it is."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Log = Literal["job", "kernel"]
# Fixed texts that a line contains all.
Texts = tuple[bytes, ...]


class EventClass(enum.StrEnum):
    """What kind of fault a line speaks of; the label ``class`` of the series."""

    HOST = "H"  # critical fault of a node: GPU, memory, PCIe, power
    NETWORK = "N"  # NIC, port, cable or path
    DISTRIBUTED = "D"  # a symptom that any rank may show when another one fails
    STORAGE = "S"  # filesystem or block device
    USER = "U"  # the user's program, data or configuration
    PLATFORM = "P"  # scheduler, container runtime, installation
    NOISE = "X"  # looks like an error and is none


@dataclass(frozen=True)
class Pattern:
    """One regular expression of a signature.

    Attributes
    ----------
    text
        The expression, in the syntax of Python's ``re``.
    literals
        Every match contains all texts of at least one of these: other lines are not searched.
    """

    text: str
    literals: frozenset[Texts]

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        """Searched for in a line, after its prefixes are taken off.

        Compiled when it is first needed: most logs need few of hundreds.
        """
        return re.compile(self.text.encode())


@dataclass(frozen=True, slots=True)
class Signature:
    """The text of one kind of error.

    Attributes
    ----------
    id
        Unique name, the label ``signature`` of the series.
    event_class
        What kind of fault it speaks of.
    patterns
        A line that any of them matches is an event of this signature.
    meaning
        What happened, in a few words.
    source
        Where the text is known from.
    cascade
        Whether the line follows from an error that was reported before, by this rank or another:
        such a line is never the root.
    exception
        Whether only the last line of a Python traceback counts.
    log
        The log it can stand in: ``job`` (output of ranks and launchers), ``kernel``, None for both.
    """

    id: str
    event_class: EventClass
    patterns: tuple[Pattern, ...]
    meaning: str
    source: str
    cascade: bool = False
    exception: bool = False
    log: Log | None = None
