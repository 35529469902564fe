"""Ways in which a job exits, by exit code, by Kubernetes' reason, by Slurm's state, by text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_responder.retry.answer import Kind
from peerwatch_responder.retry.knowledge.ruling import Entry, Limit, Ruling

if TYPE_CHECKING:
    from collections.abc import Mapping

SHIPPED = Path(__file__).parent / "exits.yaml"
# What an exit alone says is worth, and one that says little. Editorial: on either side of one half,
# below which an advice is called a guess.
_CONFIDENCE, _WEAK_CONFIDENCE = 0.65, 0.35
# SIGRTMAX of Linux.
_LAST_SIGNAL = 64


class _ExitEntry(Entry):
    code: int = Field(ge=-8000, le=256)
    meaning: str = Field(min_length=1, max_length=120)
    exit: list[int] = Field(default_factory=list)
    reason: str = ""
    message: str = ""
    text: list[str] = Field(default_factory=list)
    weak: bool = False


class _StateEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    advice: Kind
    meaning: str
    limit: Limit | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    exits: list[_ExitEntry]
    states: dict[str, _StateEntry]


@dataclass(frozen=True, slots=True)
class Exit:
    """One way to exit.

    Parameters
    ----------
    name
        ``exit_137``, or Slurm's state.
    meaning
        What happened, in a few words.
    ruling
        What is advised.
    """

    name: str
    meaning: str
    ruling: Ruling


class Exits:
    """All ways to exit that are known.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path = SHIPPED) -> None:
        file = _File.model_validate(read_yaml(path, is_shipped=path == SHIPPED))
        self._entries = [(each, _exit_of(each)) for each in file.exits]
        self._by_code = {each.code: known for each, known in self._entries}
        self._by_exit = {code: known for each, known in self._entries for code in each.exit}
        self._states: Mapping[str, Exit] = {
            name: Exit(name, state.meaning, Ruling(state.advice, 0.8, state.limit))
            for name, state in file.states.items()
        }
        texts = [(text, known) for each, known in self._entries for text in each.text]
        self._texts = [known for _, known in texts]
        self._search = re.compile(
            b"|".join(b"(?P<t%d>%b)" % (n, text.encode()) for n, (text, _) in enumerate(texts)),
            re.MULTILINE,
        )

    def of_code(self, code: int) -> Exit | None:
        """Return what an exit code says, of a process or of OpenPAI; None: nothing is known.

        Parameters
        ----------
        code
            As the scheduler reports it; -9 and 137 are both SIGKILL.
        """
        if -_LAST_SIGNAL <= code < 0:
            code = 128 - code
        return self._by_exit.get(code) or self._by_code.get(code)

    def of_reason(self, reason: str, message: str = "") -> Exit | None:
        """Return what Kubernetes' reason for an end says; None: nothing is known."""
        found = [
            (each, known)
            for each, known in self._entries
            if each.reason and re.fullmatch(each.reason, reason)
        ]
        special = [
            known for each, known in found if each.message and re.search(each.message, message)
        ]
        return next(iter(special), None) or next(
            (known for each, known in found if not each.message), None
        )

    def of_state(self, state: str) -> Exit | None:
        """Return what a job's state in Slurm says, such as ``NODE_FAIL``; None: nothing."""
        return self._states.get(state.partition(" ")[0].rstrip("+"))

    def in_text(self, text: bytes) -> tuple[Exit, int] | None:
        """Return the first exit that a text speaks of, and where; None: it speaks of none."""
        found = self._search.search(text)
        if found is None or found.lastgroup is None:
            return None
        return self._texts[int(found.lastgroup[1:])], found.start()


@cache
def shipped_exits() -> Exits:
    """Return those that ship with Peerwatch."""
    return Exits()


def _exit_of(entry: _ExitEntry) -> Exit:
    confidence = _WEAK_CONFIDENCE if entry.weak else _CONFIDENCE
    ruling = Ruling(entry.advice, confidence, entry.limit, not entry.weak)
    return Exit(f"exit_{entry.code}", entry.meaning, ruling)
