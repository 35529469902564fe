"""What the form of a line says of a failure, where no signature knows its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_responder.retry.knowledge.ruling import Entry, Ruling

if TYPE_CHECKING:
    from collections.abc import Iterable

SHIPPED = Path(__file__).parent / "forms.yaml"


class _FormEntry(Entry):
    meaning: str = Field(min_length=1)
    source: str = Field(min_length=1)
    text: list[str] = Field(min_length=1)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    forms: dict[str, _FormEntry]


@dataclass(frozen=True, slots=True)
class Form:
    """A form that lines of failures have.

    Parameters
    ----------
    name
        Its name in the file.
    meaning
        What happened, in a few words.
    ruling
        What is advised.
    texts
        Regular expressions; a line that any of them is found in has the form.
    """

    name: str
    meaning: str
    ruling: Ruling
    texts: tuple[bytes, ...]

    def is_of(self, line: bytes) -> bool:
        """Whether a line has this form."""
        # re keeps what it has compiled; most logs need it for a few lines only, or for none.
        return any(re.search(text, line) for text in self.texts)


def form_of(line: bytes, forms: Iterable[Form]) -> Form | None:
    """Return the first form that a line has; None: it has none.

    Parameters
    ----------
    line
        Without prefixes of launchers.
    forms
        In the order in which they count.
    """
    return next((each for each in forms if each.is_of(line)), None)


@cache
def shipped_forms() -> tuple[Form, ...]:
    """Return those that ship with Peerwatch, in the order of their file."""
    file = _File.model_validate(read_yaml(SHIPPED, is_shipped=True))
    return tuple(
        Form(
            f"form_{name}",
            entry.meaning,
            entry.ruling(),
            tuple(text.encode() for text in entry.text),
        )
        for name, entry in file.forms.items()
    )
