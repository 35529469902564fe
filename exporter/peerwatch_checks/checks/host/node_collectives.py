"""All-reduce and all-to-all between the GPUs of the node; between processes where there is none.

Copies may be well while collectives hang, and the other way round: both are tested.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.accelerators.devices import CPU, Device, gpus
from peerwatch_checks.accelerators.floors import floor_of
from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.collectives.ranks import Measured, measure
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_checks.check import Context

# Of the time until its deadline: for the test, and for the control after it failed, which finds
# all files in memory; the rest is for starting and ending.
_SHARE, _CONTROL_SHARE = 0.5, 0.35
# Published floors are of 8 GPUs; of fewer, NCCL may not use the switch (NVLS).
_FLOOR_RANKS = 8
# One has nobody to communicate with.
_LEAST_CPU_RANKS = 2


class NodeCollectivesOptions(Options):
    """Sizes, and how far below its peers a node may be."""

    gpu_megabytes: int = Field(default=4096, ge=1, description="Buffer of each GPU, in MiB.")
    cpu_megabytes: int = Field(
        default=16, ge=1, description="Buffer of each process without a GPU, in MiB."
    )
    cpu_ranks: int = Field(default=4, ge=2, le=64, description="Processes without a GPU, at most.")
    repeats: int = Field(default=10, ge=1, description="How often each collective is timed.")
    cpu_repeats: int = Field(
        default=40, ge=1, description="The same without a GPU; the best of them counts."
    )
    tolerance: float = Field(
        default=0.05, gt=0, lt=1, description="Share below the median of peers that is no fault."
    )
    cpu_tolerance: float = Field(
        default=0.3,
        gt=0,
        lt=1,
        description="The same without a GPU, where whatever else runs on the node takes part.",
    )


@register(
    "node_collectives",
    "host",
    "all-reduce and all-to-all between the node's GPUs, else between processes: bandwidth and sums",
    failure="NVLink, NVSwitch or shared memory is slow or broken, or NVLS is off",
    condition="nvlink_errors",
    seconds=15.0,
    suites=("full",),
    needs=("torch",),
    timeout_seconds=120.0,
    options=NodeCollectivesOptions,
)
def node_collectives(
    context: Context,
    *,
    devices: Sequence[Device] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Outcome]:
    """Yield an outcome for each collective.

    Parameters
    ----------
    context
        Node, settings, time.
    devices
        Between what; None: the GPUs, or without one the CPU, several times.
    environment
        What is set for the processes besides.
    """
    options = context.options
    assert isinstance(options, NodeCollectivesOptions)
    chosen = _devices(context, options) if devices is None else list(devices)
    if len(chosen) < 2:
        raise Skip(f"A collective needs two GPUs, {len(chosen)} may be used.")
    megabytes = options.gpu_megabytes if chosen[0].is_gpu else options.cpu_megabytes
    # Beside the buffer there is a pattern, and what NCCL needs.
    size = min(device.fits(3 * megabytes << 20) // 3 for device in chosen)
    backend = "nccl" if chosen[0].is_gpu else "gloo"

    def run(share: float, **more: str) -> Measured:
        return measure(
            [device.name for device in chosen],
            backend,
            size=size,
            repeats=options.repeats if chosen[0].is_gpu else options.cpu_repeats,
            # On processors that others use as well, the best is what the node can do.
            least=not chosen[0].is_gpu,
            seconds=share * context.seconds,
            environment={**(environment or {}), **more},
        )

    disturbance = Disturbance(context)
    measured = run(_SHARE)
    if measured.failure:
        control = run(_CONTROL_SHARE, NCCL_P2P_DISABLE="1") if backend == "nccl" else None
        yield _broken(measured, control, chosen)
        return
    # GPUs have links of their own.
    disturbed = "" if chosen[0].is_gpu else disturbance.reason()
    yield from _outcomes(measured, chosen, context, options, disturbed)


def _devices(context: Context, options: NodeCollectivesOptions) -> list[Device]:
    try:
        return gpus(context)
    except Skip:
        cores = len(os.sched_getaffinity(0))
        return [CPU] * max(_LEAST_CPU_RANKS, min(options.cpu_ranks, cores))


def _broken(measured: Measured, control: Measured | None, chosen: Sequence[Device]) -> Outcome:
    silent = ", ".join(chosen[rank].label for rank in measured.silent[:8])
    text = f"A collective of {len(chosen)} failed ({measured.failure}); no answer from {silent}."
    if control is None:
        return Outcome("error", f"{text} Run it by hand with TORCH_CPP_LOG_LEVEL=INFO.")
    if control.failure:
        # Without the paths between GPUs it fails as well: then it is not they, but perhaps a
        # library, memory, or permissions.
        return Outcome("error", f"{text} It fails without NVLink too: that decides nothing.")
    return Outcome(
        "fail", f"{text} Without paths between GPUs (NCCL_P2P_DISABLE=1) it works: look at NVLink."
    )


def _outcomes(
    measured: Measured,
    chosen: Sequence[Device],
    context: Context,
    options: NodeCollectivesOptions,
    disturbed: str,
) -> Iterator[Outcome]:
    models = {device.model for device in chosen}
    model = models.pop() if len(models) == 1 else ""
    for name, bandwidth in measured.bandwidth.items():
        if name in measured.wrong:
            ranks = ", ".join(chosen[rank].label for rank in measured.wrong[name][:8])
            text = f"{name} of {len(chosen)} gave a wrong result on {ranks}. Take the node out."
            yield Outcome("fail", text, name)
            continue
        at_floor = name == "all_reduce" and len(chosen) >= _FLOOR_RANKS
        against = reference_for(
            context,
            name,
            "GB/s",
            options.tolerance if chosen[0].is_gpu else options.cpu_tolerance,
            floor=floor_of(model, "all_reduce") if at_floor else None,
        )
        yield evaluate(
            bandwidth,
            "GB/s",
            against,
            what=f"{name} between {len(chosen)} of this node",
            advice="Look at NVLink, NVSwitch and whether NVLS is used.",
            device=name,
            disturbed=disturbed,
        )
