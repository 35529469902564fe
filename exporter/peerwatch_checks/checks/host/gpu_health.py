"""Whether each GPU answers, and what its driver says of its memory and its NVLinks (NVML).

It reads what DCGM's health watches read, also on a node without DCGM, and puts no load on a GPU.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from peerwatch_checks.check import Outcome, Skip, register
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context

# The fewest of which most can be alike: of two that differ, nobody knows which is wrong.
_MAJORITY_OF = 3


@dataclass(frozen=True, slots=True)
class _Gpu:
    label: str
    model: str
    nvlinks: int


@register(
    "gpu_health",
    "host",
    "each GPU answers; ECC errors, row remaps and NVLinks, as the driver counts them",
    failure="a GPU is lost, its memory is bad or waits for a reset, or an NVLink is down",
    condition="gpu_inaccessible",
    seconds=1.0,
    timeout_seconds=60.0,
    suites=("config", "light", "full"),
    needs=("gpu",),
    active=False,
)
def gpu_health(context: Context) -> Iterator[Outcome]:
    """Yield an outcome for each GPU that is not well, and one for all others.

    Raises
    ------
    Skip
        If NVML's library is not installed, or none of the GPUs that may be used is here.
    """
    import pynvml  # noqa: PLC0415 - a list of checks needs no driver

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if isinstance(error, pynvml.NVMLError_LibraryNotFound):
            raise Skip("NVML's library (libnvidia-ml.so.1) is not here.") from error
        # It may be the library of this container that does not fit to the driver.
        yield Outcome("error", f"NVML does not begin: {error}. Run nvidia-smi on the node.")
        return
    indices = [
        index
        for index in range(pynvml.nvmlDeviceGetCount())
        if context.gpus is None or index in context.gpus
    ]
    if not indices:
        raise Skip(f"None of the GPUs {list(context.gpus or ())} that may be used is here.")
    bad: list[Outcome] = []
    answering: list[_Gpu] = []
    for index in indices:
        try:
            gpu = _gpu(pynvml, index, bad)
        except pynvml.NVMLError as error:
            bad.append(_unreadable(pynvml, index, error))
        else:
            answering.append(gpu)
    bad += _fewer_links(answering)
    yield from bad
    if not bad:
        yield Outcome("pass", f"{len(indices)} GPUs answer; no lasting error of memory or NVLinks.")


def _unreadable(pynvml: Any, index: int, error: Exception) -> Outcome:  # noqa: ANN401 - a module
    text = f"gpu {index} does not answer: {error}."
    if isinstance(error, pynvml.NVMLError_GpuIsLost):
        return Outcome("fail", f"{text} Take the node out; a reboot may bring it back.", _of(index))
    return Outcome("error", f"{text} Run nvidia-smi -i {index} on the node.", _of(index))


def _gpu(pynvml: Any, index: int, bad: list[Outcome]) -> _Gpu:  # noqa: ANN401 - a module
    """Return a GPU that answers, and add what is wrong with its memory."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    model = str(pynvml.nvmlDeviceGetName(handle))

    def said(ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - what NVML answers
        # Not every GPU and driver knows everything; a GPU that is lost is no such answer.
        try:
            return ask()
        except pynvml.NVMLError_GpuIsLost:
            raise
        except (pynvml.NVMLError, AttributeError):
            return None

    errors = said(
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    )
    if errors:
        bad.append(
            _found(
                index,
                "uncorrectable_ecc",
                f"counted {errors} uncorrectable memory errors since the driver was loaded. Reset "
                "it; if they come again, have it replaced.",
                float(errors),
            )
        )
    _corrected, _uncorrected, pending, failed = said(
        lambda: pynvml.nvmlDeviceGetRemappedRows(handle)
    ) or (0, 0, 0, 0)
    if failed:
        text = "could not replace a bad row of its memory. Have it replaced."
        bad.append(_found(index, "row_remap_failed", text))
    pages = said(lambda: pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
    if pending or pages:
        text = "replaces bad memory when it is next reset. Reset it when its job has ended."
        bad.append(_found(index, "gpu_reset_pending", text))
    links = (
        said(partial(pynvml.nvmlDeviceGetNvLinkState, handle, link))
        for link in range(int(getattr(pynvml, "NVML_NVLINK_MAX_LINKS", 18)))
    )
    return _Gpu(_of(index), model, sum(state == 1 for state in links))


def _found(index: int, condition: str, text: str, value: float | None = None) -> Outcome:
    # A GPU may have several: each is a device of its own in the results.
    device = f"{_of(index)} {condition}"
    severity = severity_of(condition)
    unit = "" if value is None else "errors"
    return Outcome("fail", f"{_of(index)} {text}", device, value, unit, severity=severity)


def _fewer_links(gpus: list[_Gpu]) -> Iterator[Outcome]:
    """Yield GPUs with fewer NVLinks than most of their model have; bridges may leave some free."""
    for gpu in gpus:
        alike = Counter(each.nvlinks for each in gpus if each.model == gpu.model)
        usual, count = alike.most_common(1)[0]
        if alike.total() < _MAJORITY_OF or count * 2 <= alike.total() or gpu.nvlinks >= usual:
            continue
        text = f"{gpu.label} has {gpu.nvlinks} NVLinks up, {count} GPUs like it have {usual}. "
        yield Outcome(
            "fail",
            f"{text}Look at nvidia-smi nvlink --status and the fabric manager's log.",
            f"{gpu.label} nvlink_errors",
            float(gpu.nvlinks),
            "links",
            float(usual),
            severity_of("nvlink_errors"),
        )


def _of(index: int) -> str:
    return f"gpu {index}"
