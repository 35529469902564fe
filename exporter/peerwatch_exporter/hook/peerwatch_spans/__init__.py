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

from .segments import NOTHING, segment_of_thread

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .recorder import Recorder

__all__ = ["segment", "start"]

_active: Recorder | None = None


def segment(name: str) -> AbstractContextManager[None]:
    """Return what times the body of a ``with`` statement as a segment of the step.

    Parameters
    ----------
    name
        1 to 48 letters, digits, ``_``, ``.`` and ``-``. A rank has at most 32 segments of its
        own; spans of further ones, or of names of another form, are counted as dropped.

    Returns
    -------
    AbstractContextManager
        For the calling thread, which may use it again.
    """
    recorder = _active
    if recorder is None:
        return NOTHING
    try:
        return recorder.local.segments[name]
    except Exception:
        return segment_of_thread(recorder, name)


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
