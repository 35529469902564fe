"""Where the seconds of a training step go: spans, kept by the rank itself.

``start`` switches them on (the hook's ``sitecustomize`` calls it); from there on the loops of
PyTorch are timed without a change to the job's code. A program can name segments of its own::

    from peerwatch_spans import segment

    with segment("tokenize"):
        ...

Where spans are off, ``segment`` does nothing. Standard library only; ``docs/spans.md`` of the
project has the format of the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from .recorder import Recorder

__all__ = ["segment", "start"]

_active: Recorder | None = None


class segment:  # noqa: N801 - used like a function, as contextlib's suppress is
    """Times the body of a ``with`` statement as a segment of the step.

    Parameters
    ----------
    name
        1 to 48 letters, digits, ``_``, ``.`` and ``-``. A rank has at most 32 segments of its
        own; spans of further ones, or of names of another form, are counted as dropped.
    """

    __slots__ = ("_begun", "_name", "_recorder", "_segment")

    def __init__(self, name: str) -> None:
        self._name = name
        self._recorder: Recorder | None = None

    def __enter__(self) -> None:
        recorder = _active
        if recorder is None:
            return
        number = recorder.names.segment(self._name)
        if number is not None:
            self._segment = number
            self._begun: Any = recorder.begin(number)
            if self._begun is not None:
                self._recorder = recorder

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        if recorder is not None:
            self._recorder = None
            recorder.end(self._segment, self._begun)


def start(directory: str) -> None:
    """Time this process' training loop, if it turns out to have one.

    Parameters
    ----------
    directory
        Where ``rank-<rank>.spans`` is written; made if it is not there.
    """
    global _active  # noqa: PLW0603 - hooks of a process are a state of the process
    if _active is not None:
        return
    from .imports import after_import  # noqa: PLC0415 - only where spans are on
    from .instruments import Instruments  # noqa: PLC0415
    from .recorder import Recorder  # noqa: PLC0415

    recorder = Recorder(directory)
    after_import(Instruments(recorder).by_module())
    os.register_at_fork(after_in_child=_silence)
    _active = recorder


def _silence() -> None:
    """Stop in a forked child, such as a worker of a DataLoader: it is not the rank."""
    global _active  # noqa: PLW0603
    if _active is not None:
        _active.silence()
        _active = None
