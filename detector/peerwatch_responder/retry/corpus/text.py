"""One log of the corpus: the text, what it failed of, and what is right to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from peerwatch_common.errors import PeerwatchError

Label = Literal["retry", "retry_elsewhere", "retry_with_backoff", "do_not_retry", "ask_user"]
Origin = Literal["written", "real", "user"]
LABELS: tuple[str, ...] = get_args(Label)
ORIGINS: tuple[str, ...] = get_args(Origin)


class CorpusError(PeerwatchError):
    """A file of labelled logs cannot be read; the message says which line and why."""


@dataclass(frozen=True, slots=True)
class Text:
    """A labelled log.

    Parameters
    ----------
    id
        Unique in the corpus.
    mechanism
        What the job failed of. All texts of a mechanism have one label: evaluation leaves out
        mechanisms, never lines.
    source
        Who words the message, such as a framework, a scheduler or the kernel.
    origin
        ``written`` from the published formats of messages, ``real`` of a job that was made to
        fail, ``user`` of a site's own jobs.
    label
        What is right to do the first time it happens.
    deterministic
        Whether the same job would fail of it again.
    text
        The log, its lines separated by LF.
    """

    id: str
    mechanism: str
    source: str
    origin: Origin
    label: Label
    deterministic: bool
    text: str

    @property
    def retry(self) -> bool:
        """Whether it is right to start the job again."""
        return self.label.startswith("retry")

    @property
    def lines(self) -> list[str]:
        """The lines of the log."""
        return self.text.split("\n")
