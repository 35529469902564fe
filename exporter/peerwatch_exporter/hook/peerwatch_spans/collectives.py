"""Times collectives that the program calls through ``torch.distributed``, by group.

What C++ calls itself (the buckets of DistributedDataParallel) does not pass here, nor does a
collective that was only launched (``async_op=True``) on a GPU: the flight recorder knows those.
"""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from .names import COLLECTIVE

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .recorder import Recorder

FUNCTIONS = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",  # its name since torch 2.13
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "barrier",
)
# Where the rank of the other side stands among the arguments, and under which name.
POINT_TO_POINT = {"send": (1, "dst"), "recv": (1, "src")}


def time_functions(recorder: Recorder, module: ModuleType) -> None:
    """Replace the functions of ``torch.distributed`` by ones that also time them."""
    numbers: dict[tuple[object, ...], int] = {}
    for name in (*FUNCTIONS, *POINT_TO_POINT):
        if hasattr(module, name):
            setattr(module, name, _timed(recorder, module, name, numbers))


def _timed(
    recorder: Recorder, module: ModuleType, name: str, numbers: dict[tuple[object, ...], int]
) -> Any:  # noqa: ANN401 - a function with the signature of the original
    original = getattr(module, name)
    peer_at = POINT_TO_POINT.get(name)

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the original
        compiler = sys.modules.get("torch.compiler")
        if compiler is None or compiler.is_compiling():
            return original(*args, **kwargs)
        begun = recorder.begin(COLLECTIVE, on_host=not any(map(_on_gpu, args[:2])))
        if begun is None:
            return original(*args, **kwargs)
        detail = number = 0
        work = None
        with suppress(Exception):
            group = _group_name(module, kwargs.get("group") or _group_among(args))
            peer = None if peer_at is None else _argument(args, kwargs, *peer_at)
            detail = recorder.names.detail(group, name, peer if type(peer) is int else None)
            # Collectives of a group have one order on all its ranks; so do messages to one peer.
            key = (group,) if peer_at is None else (group, name, peer)
            number = numbers[key] = numbers.get(key, 0) + 1
        try:
            work = original(*args, **kwargs)
            return work
        finally:
            if work is not None and hasattr(work, "wait"):
                _end_with(recorder, work, begun, detail, number)
            else:
                recorder.end(COLLECTIVE, begun, detail, number)

    return timed


def _end_with(recorder: Recorder, work: Any, begun: Any, detail: int, number: int) -> None:  # noqa: ANN401 - torch's Work, and what begin returned
    """Let a launched collective's span last until it is done, which only the host can be told."""
    recorder.tally().depth[COLLECTIVE] = 0
    if type(begun) is not int:
        recorder.discard(begun)
        return

    def done(_: object) -> None:
        recorder.end(COLLECTIVE, begun, detail, number)

    try:
        work.get_future().add_done_callback(done)
    except Exception:
        recorder.dropped += 1


def _on_gpu(argument: object) -> bool:
    """Return whether an argument is a tensor on a GPU, or a list of them."""
    first = argument[0] if isinstance(argument, (list, tuple)) and argument else argument
    return getattr(first, "is_cuda", False) is True


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str) -> Any:  # noqa: ANN401
    return args[at] if len(args) > at else kwargs.get(name)


def _group_among(args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a ProcessGroup or None
    for argument in args:
        if hasattr(type(argument), "group_name"):
            return argument
    return None


def _group_name(module: ModuleType, group: Any) -> str:  # noqa: ANN401 - a ProcessGroup or None
    if group is None:
        group = module.group.WORLD
    return str(group.group_name)
