"""What is timed in PyTorch, each put in place when its module has been imported.

A function that is timed calls the original with the same arguments, whatever happens around it.
While torch compiles (Dynamo traces these functions too) it does nothing but that: the branch is
constant then, and nothing of it stays in the graph.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from . import collectives, forward
from .names import BACKWARD, CHECKPOINT, DATA, OPTIMIZER, STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    from .recorder import Recorder

# Young generations are collected many times a step, in microseconds: they count in the totals, and
# only a longer run gets a record of its own.
SHORTEST_GC_NS = 100_000
# After so many steps of other optimisers in a row, the one that counted steps is given up. Chosen:
# programs with several take far fewer in turn.
_MOST_FOREIGN_STEPS = 64


class Instruments:
    """Times the training loop into a recorder.

    Parameters
    ----------
    recorder
        Takes the spans.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._steps = Steps(recorder)
        self._gc_began = 0

    def by_module(self) -> Mapping[str, Callable[[ModuleType], None]]:
        """Return what is to be called with which module, once it has been imported."""
        return {
            "torch.optim.optimizer": self._optimizers,
            "torch.utils.data.dataloader": self._loaders,
            "torch.autograd": self._autograd,
            "torch.serialization": self._checkpoints,
            "torch.distributed.checkpoint.state_dict_saver": self._checkpoints,
            "torch.distributed.distributed_c10d": self._collectives,
            "torch": self._torch,
        }

    def _torch(self, torch: ModuleType) -> None:
        if getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None):
            from .gpu import GpuTimer, wanted  # noqa: PLC0415 - with GPUs only
            from .sampling import KEPT_SECONDS, StepSampler  # noqa: PLC0415

            if wanted():
                sampler = StepSampler(self._recorder.capacity / KEPT_SECONDS)
                self._recorder.time_on(GpuTimer(torch.cuda, self._recorder, sampler))
        gc.callbacks.append(self._collected)
        self._recorder.start()

    def _optimizers(self, module: ModuleType) -> None:
        module.register_optimizer_step_pre_hook(self._steps.before)
        module.register_optimizer_step_post_hook(self._steps.after)

    def _loaders(self, module: ModuleType) -> None:
        # Both kinds of iterators, with workers and without, inherit it.
        time_attribute(self._recorder, DATA, module._BaseDataLoaderIter, "__next__")  # noqa: SLF001

    def _autograd(self, module: ModuleType) -> None:
        # Tensor.backward looks it up here at each call.
        time_attribute(self._recorder, BACKWARD, module, "backward", on_host=False)

    def _checkpoints(self, module: ModuleType) -> None:
        for name in ("save", "async_save"):
            if hasattr(module, name):
                time_attribute(self._recorder, CHECKPOINT, module, name)

    def _collectives(self, module: ModuleType) -> None:
        collectives.time_functions(self._recorder, module)

    def _collected(self, phase: str, info: object) -> None:  # noqa: ARG002 - gc's signature
        if phase == "start":
            self._gc_began = time.perf_counter_ns()
        elif self._gc_began:
            began, self._gc_began = self._gc_began, 0
            with suppress(Exception):
                self._recorder.add_gc(began, time.perf_counter_ns(), shortest=SHORTEST_GC_NS)


class Steps:
    """Makes steps of what optimisers do: a step lasts from the end of one to the end of the next.

    Where there are several optimisers, the first to be seen counts the steps; accumulated gradients
    are thus one step, and so are a generator's and a discriminator's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._first: weakref.ref[Any] | None = None
        self._foreign = 0
        self._outermost: weakref.ref[Any] | None = None
        self._begun: Any = None
        self._ended_ns = 0

    def before(self, optimizer: Any, args: object, kwargs: object) -> None:  # noqa: ANN401, ARG002 - torch's signature
        """Note that an optimiser begins."""
        if is_compiling():
            return
        try:
            outermost = None if self._outermost is None else self._outermost()
            # One that another calls is part of it; one that raised must not stay the outermost.
            if self._begun is not None and outermost is not None and _holds(outermost, optimizer):
                return
            self._recorder.tally().depth[OPTIMIZER] = 0
            self._outermost = weakref.ref(optimizer)
            self._begun = self._recorder.begin(OPTIMIZER)
        except Exception:
            self._begun = None

    def after(self, optimizer: Any, args: object, kwargs: object) -> None:  # noqa: ANN401, ARG002
        """Add the optimiser's span, and the step's if it counts steps."""
        if is_compiling():
            return
        try:
            if self._outermost is None or self._outermost() is not optimizer:
                return
            begun, self._begun = self._begun, None
            if begun is not None:
                self._recorder.end(OPTIMIZER, begun)
            if self._counts(optimizer):
                self._step_ended()
        except Exception:
            self._recorder.dropped += 1

    def _counts(self, optimizer: object) -> bool:
        first = None if self._first is None else self._first()
        if first is not optimizer:
            self._foreign += 1
            if first is not None and self._foreign <= _MOST_FOREIGN_STEPS:
                return False
            self._first = weakref.ref(optimizer)
        self._foreign = 0
        return True

    def _step_ended(self) -> None:
        recorder = self._recorder
        now = time.perf_counter_ns()
        if self._ended_ns:
            recorder.add(STEP, self._ended_ns, now)
        recorder.step += 1
        if self._ended_ns and recorder.gpu is not None:
            recorder.gpu.sampler.step_ended(recorder.step, now - self._ended_ns)
        self._ended_ns = now
        if recorder.step in forward.SEARCH_STEPS:
            recorder.later(lambda: forward.time_models(recorder))


def time_attribute(
    recorder: Recorder,
    segment: int,
    owner: Any,  # noqa: ANN401 - a class or a module
    name: str,
    *,
    on_host: bool = True,
) -> None:
    """Replace a function by one that also times it; nested calls are part of the outermost."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the original
        if is_compiling():
            return original(*args, **kwargs)
        begun = recorder.begin(segment, on_host=on_host)
        if begun is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.end(segment, begun)

    setattr(owner, name, timed)


def is_compiling() -> bool:
    """Return whether torch traces or exports; it is true while Dynamo looks at it."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_compiling()


def _holds(outer: object, inner: object) -> bool:
    """Return whether an optimiser has another one in an attribute, as wrappers do."""
    return any(value is inner for value in vars(outer).values())
