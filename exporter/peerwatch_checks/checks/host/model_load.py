"""How fast a model is loaded from a disk into memory, and onto a GPU where there is one.

A job that starts does this on all nodes at once; one that loads slowly, or wrong weights, holds up
or spoils all of them.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from peerwatch_checks.accelerators.devices import SEED, gpus
from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_checks.least_time import LeastTime, undisturbed
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context

# Files of the model: chosen, some, as checkpoints have. Passes without news: as in
# disk_write_read.py.
_LAYERS = 8
_PASSES = 2
# Where it stays slow, or the model is large: half of what writing and reading a disk gets.
_SECONDS = 8.0


class ModelLoadOptions(Options):
    """Where from, how much, and how fast it must be."""

    path: str = Field(
        default="",
        description="A folder on the file system that models are loaded from; empty: where checks "
        "write (paths.work).",
    )
    size_bytes: int = Field(
        default=128 * 1024**2, ge=1024**2, le=16 * 1024**3, description="Size of the model."
    )
    tolerance: float = Field(
        default=0.5, gt=0, lt=1, description="Share below the median that is never a fault."
    )
    floor: float | None = Field(
        default=None, gt=0, description="MB/s that loading must reach where there are no peers."
    )


def load_layer(path: Path) -> Any:  # noqa: ANN401 - an array
    """Return a layer from its file."""
    import numpy as np  # noqa: PLC0415 - only the check needs it

    return np.load(path)


@register(
    "model_load",
    "host",
    "writes a small model, loads it from the disk into memory and onto a GPU, with right bits",
    failure="jobs start slowly, or with other weights: the disk, its file system, or the PCIe link",
    condition="slow_storage",
    seconds=6.0,
    suites=("full",),
    needs=("numpy",),
    timeout_seconds=90.0,
    options=ModelLoadOptions,
)
def model_load(context: Context, *, load: Callable[[Path], Any] = load_layer) -> Iterator[Outcome]:
    """Yield one outcome: the least time of each layer over some loads of all.

    Parameters
    ----------
    context
        Settings, time, GPUs.
    load
        Returns a layer from its file.
    """
    options = context.options
    assert isinstance(options, ModelLoadOptions)
    place = context.rootfs / options.path.lstrip("/") if options.path else context.work_folder
    against = reference_for(context, "", "MB/s", options.tolerance, floor=options.floor)
    onto = _onto_gpu(context)
    disturbance = Disturbance(context, place)
    try:
        with tempfile.TemporaryDirectory(prefix="peerwatch-model-", dir=place) as folder:
            layers = _written(Path(folder), options.size_bytes)
            size = sum(path.stat().st_size for path in layers)
            loads, least, wrong = _loaded(
                layers,
                lambda path: onto(load(path)),
                lambda seconds: against is None or against.allows(size / seconds / 1e6),
                min(_SECONDS, context.seconds / 3),
            )
    except OSError as error:
        text = f"{options.path or 'paths.work'}: {error.strerror}. Correct model_load.path."
        yield Outcome("error", text)
        return
    if wrong:
        text = f"Layer {wrong} of the model is not what was written. Take the node out."
        yield Outcome("fail", text, severity=severity_of("wrong_results"))
        return
    yield evaluate(
        size / least / 1e6,
        "MB/s",
        against,
        what="Loading a model",
        advice="Look at the disk, its file system, and what else uses it.",
        # It was written once.
        disturbed=disturbance.reason((1 + loads) * size),
    )


def _written(folder: Path, size: int) -> dict[Path, int]:
    """Write the layers of a model to the disk; return the checksum of each."""
    import numpy as np  # noqa: PLC0415 - only the check needs it

    rng = np.random.default_rng(SEED)
    found: dict[Path, int] = {}
    for number in range(_LAYERS):
        layer = rng.integers(0, 2**32, max(1, size // 4 // _LAYERS), dtype=np.uint32)
        path = folder / f"layer{number}.npy"
        with path.open("wb") as file:
            np.save(file, layer)
            file.flush()
            os.fsync(file.fileno())
        found[path] = checksum(layer)
    return found


def checksum(layer: Any) -> int:  # noqa: ANN401 - an array
    """Return the sum of a layer's bits, as integers: one flipped bit changes it."""
    import numpy as np  # noqa: PLC0415 - only the check needs it

    return int(layer.sum(dtype=np.uint64))


def _loaded(
    layers: dict[Path, int],
    load: Callable[[Path], Any],
    enough: Callable[[float], bool],
    within: float,
) -> tuple[int, float, str]:
    """Return how often all layers were loaded, the least seconds, and which one was wrong."""
    least = LeastTime(_PASSES)
    begun = time.monotonic()
    taken = 0.0
    loads = 0
    while taken == 0.0 or time.monotonic() - begun + taken < within:
        start = time.monotonic()
        parts = []
        for path, expected in layers.items():
            _forget(path)
            before = undisturbed()
            layer = load(path)
            parts.append(undisturbed() - before)
            if checksum(layer) != expected:
                return loads, sum(parts), path.stem
        loads += 1
        least.add(parts)
        taken = time.monotonic() - start
        if least.is_stable and enough(least.seconds):
            break
    return loads, least.seconds, ""


def _forget(path: Path) -> None:
    """Have the next read of a file come from the disk, not from memory."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _onto_gpu(context: Context) -> Callable[[Any], Any]:
    """Return what brings a layer onto the first GPU and back; nothing without one."""
    if not any((context.procfs / "driver" / "nvidia" / "gpus").glob("*")):
        return lambda layer: layer
    try:
        device = gpus(context)[0]
    except (ImportError, Skip):
        return lambda layer: layer
    import torch  # noqa: PLC0415 - only with a GPU

    def there_and_back(layer: Any) -> Any:  # noqa: ANN401 - an array
        whole = torch.from_numpy(layer.view("int32")).to(device.name)
        return whole.cpu().numpy().view("uint32")

    return there_and_back
