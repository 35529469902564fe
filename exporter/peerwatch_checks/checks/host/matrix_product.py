"""Products of large matrices on each GPU: how fast, and whether the same bits come out each time.

On a node without GPUs they are products of smaller matrices on each CPU.

A GPU that is slow has low clocks, a power cap or heat; one that computes something else corrupts
training in silence. Equality is exact: the sum of a result's bits, as integers, changes by one bit
in a million, which no tolerance of floating point shows.
"""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from peerwatch_checks.accelerators.cpu_products import PRECISIONS, cpu_products, gigaflops
from peerwatch_checks.accelerators.devices import (
    MEASURING_SHARE,
    SEED,
    Device,
    gpus,
    released,
    seconds_of,
)
from peerwatch_checks.accelerators.floors import Quantity, floor_of
from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from peerwatch_checks.accelerators.cpu_products import CpuProduct
    from peerwatch_checks.check import Context

# Two of three agree: of two that differ, nobody knows which is wrong.
_MAJORITY_OF = 3
# For CPUs that stay slow, and for nodes with many: as in cpu_compute.py.
_CPU_SECONDS = 4.0


class MatrixProductOptions(Options):
    """Sizes, and how far below its peers a GPU may be."""

    size: int = Field(default=8192, ge=16, description="Rows and columns of the matrices.")
    repeats: int = Field(default=20, ge=2, description="How often a product is timed.")
    tolerance: float = Field(
        default=0.10,
        gt=0,
        lt=1,
        description="Share below the median of peers that is no fault: healthy GPUs of a node "
        "differ by up to 5 %, those of a fleet by more.",
    )
    cpu_size: int = Field(
        default=512, ge=16, le=8192, description="Rows and columns where there is no GPU."
    )
    cpu_tolerance: float = Field(
        default=0.2, gt=0, lt=1, description="The same share where there is no GPU."
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    device: Device
    precision: str
    tflops: float
    checksums: tuple[int, ...]


@register(
    "matrix_product",
    "host",
    "products of matrices on each GPU (torch), else on each CPU (numpy): speed and equal bits",
    failure="slow: clocks, power cap or heat; unequal bits: the GPU or CPU computes wrongly",
    condition="slow_gpu",
    seconds=8.0,
    suites=("light", "full"),
    timeout_seconds=90.0,
    options=MatrixProductOptions,
)
def matrix_product(
    context: Context,
    *,
    devices: Sequence[Device] | None = None,
    result: Callable[[Device, Any], Any] = lambda _device, product: product,
) -> Iterator[Outcome]:
    """Yield an outcome per GPU and precision; without GPUs one per precision for all CPUs.

    Parameters
    ----------
    context
        Node, settings, time.
    devices
        What to test; None: the GPUs.
    result
        What a device made of a product, before its bits are summed.

    Raises
    ------
    Skip
        If a package is missing, or torch finds no GPU where the driver has one.
    """
    options = context.options
    assert isinstance(options, MatrixProductOptions)
    if devices is None and not _has_gpus(context):
        yield from _on_cpus(context, options, result)
        return
    _require("torch")
    chosen = gpus(context) if devices is None else list(devices)
    each = MEASURING_SHARE * context.seconds / len(chosen)
    measured = []
    for device in chosen:
        deadline = time.monotonic() + each
        for precision in _precisions(device):
            with released():
                measured.append(_measure(device, precision, options, deadline, result))
    for product in measured:
        yield _outcome(product, measured, context, options)


def _has_gpus(context: Context) -> bool:
    folder = context.procfs / "driver" / "nvidia" / "gpus"
    return context.gpus != () and folder.is_dir() and any(folder.iterdir())


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise Skip(f"{package} is not installed: pip install {package}.")


def _on_cpus(
    context: Context, options: MatrixProductOptions, result: Callable[[Device, Any], Any]
) -> Iterator[Outcome]:
    """Yield an outcome for each precision, and one for each CPU that computes otherwise."""
    _require("numpy")
    names = {precision: f"cpu {precision}" for precision in PRECISIONS}
    against = {
        precision: reference_for(context, name, "GFLOP/s", options.cpu_tolerance)
        for precision, name in names.items()
    }

    def enough(precision: str, speed: float) -> bool:
        limit = against[precision]
        return limit is None or limit.allows(speed)

    disturbance = Disturbance(context)
    seconds = min(_CPU_SECONDS, context.seconds / 3)
    for precision, products in cpu_products(options.cpu_size, seconds, result, enough).items():
        yield from _unlike(precision, products)
        yield evaluate(
            gigaflops(options.cpu_size, products),
            "GFLOP/s",
            against[precision],
            what=f"Products in {precision}, median of {len(products)} CPUs",
            advice="Look at the CPU's governor, clock, temperature and power limit.",
            device=names[precision],
            disturbed=disturbance.reason(),
        )


def _unlike(precision: str, products: Sequence[CpuProduct]) -> Iterator[Outcome]:
    """Yield a failure for each CPU whose bits differ, from its own or from those of most."""
    sums = Counter(total for each in products for total in each.checksums)
    usual = sums.most_common(1)[0][0]
    for each in products:
        if each.checksums != {usual}:
            what = (
                "not the same each time" if len(each.checksums) > 1 else "not those of the others"
            )
            yield Outcome(
                "fail",
                f"CPU {each.cpu}: the bits of the same product in {precision} are {what}. Take the "
                "node out.",
                f"cpu {each.cpu} {precision}",
                severity=severity_of("wrong_results"),
            )


def _precisions(device: Device) -> list[str]:
    import torch  # noqa: PLC0415 - only the check needs it

    found = ["bfloat16", "float32"]
    # Products of float8 came with Ada and Hopper.
    if device.is_gpu and torch.cuda.get_device_capability(device.name) >= (8, 9):
        found.append("float8")
    return found


def _measure(
    device: Device,
    precision: str,
    options: MatrixProductOptions,
    deadline: float,
    result: Callable[[Device, Any], Any],
) -> _Measured:
    import torch  # noqa: PLC0415 - only the check needs it

    size = options.size
    # Drawn on the CPU: the generators of GPU models differ, and so would the sums.
    generator = torch.Generator().manual_seed(SEED)
    a, b = (
        torch.randn(size, size, generator=generator, dtype=torch.float32).to(device.name)
        for _ in range(2)
    )
    product = _product(precision, a, b)
    work = seconds_of(product, device, repeats=options.repeats, deadline=deadline)
    sums = tuple(checksum(result(device, product())) for _ in range(2))
    return _Measured(device, precision, 2 * size**3 / work / 1e12, sums)


def _product(precision: str, a: Any, b: Any) -> Callable[[], Any]:  # noqa: ANN401 - tensors
    import torch  # noqa: PLC0415 - only the check needs it

    if precision == "float8":
        unscaled = torch.ones((), device=a.device)
        # Row-major times column-major is what the hardware has.
        left, right = (each.to(torch.float8_e4m3fn) for each in (a, b.t().contiguous()))

        def product() -> Any:  # noqa: ANN401 - a tensor
            # Private, but all that torch has for products of float8.
            return torch._scaled_mm(  # noqa: SLF001
                left, right.t(), scale_a=unscaled, scale_b=unscaled, out_dtype=torch.bfloat16
            )

        return product
    left, right = (each.to(getattr(torch, precision)) for each in (a, b))
    return lambda: left @ right


def checksum(tensor: Any) -> int:  # noqa: ANN401 - a tensor
    """Return the sum of a tensor's bits, taken as integers of its element's width.

    One flipped bit of one element changes it by a power of two.
    """
    import torch  # noqa: PLC0415 - only the check needs it

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    whole = tensor.contiguous().view(integers[tensor.element_size()])
    return int(whole.sum(dtype=torch.int64))


def _outcome(
    product: _Measured,
    measured: Sequence[_Measured],
    context: Context,
    options: MatrixProductOptions,
) -> Outcome:
    import torch  # noqa: PLC0415 - only the check needs it

    device, precision = product.device, product.precision
    name = f"{device.label} {precision}"
    alike = [
        each
        for each in measured
        if each.precision == precision and each.device.model == device.model
    ]
    wrong = _wrong_bits(product, alike)
    if wrong:
        return Outcome(
            "fail",
            f"{device.label}: {wrong} Take the GPU out; run the check again to be sure.",
            name,
            severity=severity_of("wrong_results"),
            versions={"torch": str(torch.__version__)},
        )
    others = [each.tflops for each in alike if each is not product]
    quantity: dict[str, Quantity] = {"bfloat16": "bfloat16", "float8": "float8"}
    kind = quantity.get(precision)
    floor = floor_of(device.model, kind) if kind else None
    return evaluate(
        product.tflops,
        "TFLOP/s",
        reference_for(context, name, "TFLOP/s", options.tolerance, others=others, floor=floor),
        what=f"Products in {precision} on {device.label} ({device.model})",
        advice="Look at its clocks, power limit, temperature and throttle reasons.",
        device=name,
    )


def _wrong_bits(product: _Measured, alike: Sequence[_Measured]) -> str:
    """Return how a result differs from itself or from that of most devices; empty if it does not.

    Only devices of one model are compared, which run the same kernels of the same library.
    """
    if len(set(product.checksums)) > 1:
        first, second = product.checksums
        return (
            f"the same product in {product.precision} gave other bits the second time "
            f"(sums {first} and {second})."
        )
    sums = Counter(each.checksums[0] for each in alike if len(set(each.checksums)) == 1)
    if sums.total() < _MAJORITY_OF:
        return ""
    usual, count = sums.most_common(1)[0]
    if product.checksums[0] == usual or count * 2 <= sums.total():
        return ""
    return (
        f"its product in {product.precision} has other bits (sum {product.checksums[0]}) than that "
        f"of {count} other GPUs of its model (sum {usual})."
    )
