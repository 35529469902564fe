"""Finds the models of a program, and times their outermost calls.

A hook on every module would cost microseconds for each of its hundreds of calls, and one on the
model itself would be copied and pickled with it. Instead the class of the model, and of what it
wraps, gets a ``__call__`` that times the outermost call and is not part of any object.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from .names import BACKWARD, FORWARD

if TYPE_CHECKING:
    from typing import Any

    from .recorder import Recorder

# After the first step the models are there; later ones (of a next phase) are found with luck.
SEARCH_STEPS = (1, 100)
# Chosen: a few models (actor, critic, reference, reward), each with its wrappers.
_MOST_CLASSES = 16
# What holds at least this share of a model's parameters is called in its stead by some frameworks.
_SHARE = 0.5
# As deep as wrappers stand: parallel, framework's, precision's, and the model.
_DEEPEST = 4


def time_models(recorder: Recorder) -> None:
    """Time the outermost forward of every model there is.

    Takes tens of milliseconds in a large program, so it is not for the training loop's own thread.
    """
    torch = sys.modules["torch"]
    base = torch.nn.Module
    classes: list[type] = []
    for root in _roots(base):
        for model in _chain(root):
            # torch's own layers and containers are in models many times, called in each.
            is_layer = model is not root and type(model).__module__.startswith("torch.nn.modules")
            if type(model) not in classes and not is_layer:
                classes.append(type(model))
    for cls in classes[:_MOST_CLASSES]:
        with suppress(Exception):
            _time_class(recorder, cls)


def _roots(base: type) -> list[Any]:
    """Return modules with parameters that are in no other module, the largest first."""
    # By its real class: an object may pretend to be another, and run code of its own to do so.
    modules = [found for found in gc.get_objects() if base in type(found).__mro__]
    inner = {id(child) for module in modules for child in module._modules.values()}  # noqa: SLF001
    sized = [(_size(module), module) for module in modules if id(module) not in inner]
    sized.sort(key=lambda pair: -pair[0])
    return [module for size, module in sized if size]


def _chain(root: Any) -> list[Any]:  # noqa: ANN401 - a torch.nn.Module
    """Return a model and, one inside the other, what holds most of it; but nothing compiled."""
    chain = [root]
    whole = _size(root)
    while len(chain) < _DEEPEST and type(chain[-1]).__name__ != "OptimizedModule":
        children = [child for child in chain[-1]._modules.values() if child is not None]  # noqa: SLF001
        largest = max(children, key=_size, default=None)
        if largest is None or _size(largest) < _SHARE * whole:
            break
        chain.append(largest)
    return chain


def _size(module: Any) -> int:  # noqa: ANN401 - a torch.nn.Module
    return sum(parameter.numel() for parameter in module.parameters())


def _time_class(recorder: Recorder, cls: Any) -> None:  # noqa: ANN401 - a class of modules
    own = vars(cls).get("__call__")
    if getattr(own, "is_timed", False) or cls.__module__.startswith("torch.jit"):
        return
    compiler = sys.modules["torch.compiler"]

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N807 - those of the model
        # The inherited one is looked up at each call: what traces models replaces it for a while.
        original = super(cls, self).__call__ if own is None else own.__get__(self)
        if compiler.is_compiling() or recorder.tally().depth[BACKWARD]:
            return original(*args, **kwargs)  # the latter: activations are computed again
        begun = recorder.begin(FORWARD)
        if begun is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.end(FORWARD, begun)

    __call__.is_timed = True  # type: ignore[attr-defined]
    cls.__call__ = __call__
