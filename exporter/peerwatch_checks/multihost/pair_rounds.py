"""What checks of pairs have in common: who takes part, the store, the rounds, and what is said."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import Field

from peerwatch_checks.accelerators.devices import gpus_or_cpu
from peerwatch_checks.check import Options
from peerwatch_checks.multihost.member import first_node_gone, take_part
from peerwatch_checks.multihost.pair_outcomes import Words, outcomes
from peerwatch_checks.multihost.rounds import SHARE_OF_DEADLINE, Limits, Rounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_checks.check import Context, Outcome
    from peerwatch_checks.multihost.rounds import Measure, Store
    from peerwatch_checks.pairs.schedule import Places


class PairOptions(Options):
    """Sizes and times of a check of pairs; a subclass says how large buffers and tolerance are."""

    partners: int = Field(
        default=3,
        ge=1,
        le=16,
        description="How many others each node meets; one more than there may be bad nodes.",
    )
    gpu_megabytes: int = Field(default=2048, ge=1, description="Buffer of each GPU, in MiB.")
    cpu_megabytes: int = Field(default=16, ge=1, description="Buffer without GPUs, in MiB.")
    repeats: int = Field(default=10, ge=1, description="How often a pair is timed.")
    tolerance: float = Field(
        default=0.15, gt=0, lt=1, description="Share below the healthy level that is no fault."
    )
    join_seconds: float = Field(
        default=60.0, gt=0, description="Until then a node has come, or it is missing."
    )
    pair_seconds: float = Field(default=60.0, gt=0, description="What a pair's test may take.")


class MeasureOf(Protocol):
    """Returns what measures a pair, such as ``torch_pairs.by_all_reduce``."""

    def __call__(
        self, store: Store, devices: Sequence[str], address: str, *, size: int, repeats: int
    ) -> Measure:
        """Return it for a node's devices."""


@dataclass(frozen=True, slots=True)
class PairTest:
    """One kind of test between pairs.

    Parameters
    ----------
    purpose, port_offset
        As for ``torch_pairs.store_of``.
    least_nodes, too_few
        As for ``take_part``.
    buffers
        How many buffers a device must have room for.
    measure
        Returns what measures a pair.
    words
        How a value reads.
    floor
        What a pair must reach, in the value's unit; None: not known.
    """

    purpose: str
    port_offset: int
    least_nodes: int
    too_few: str
    buffers: int
    measure: MeasureOf
    words: Words
    floor: float | None = None


def tested_in_pairs(
    context: Context,
    options: PairOptions,
    test: PairTest,
    *,
    environment: Mapping[str, str] | None,
    places: Places | None,
) -> Iterator[Outcome]:
    """Yield what is known of this node, and on the first one of everything else.

    Parameters
    ----------
    context
        Node, settings, time.
    options
        Sizes, times, tolerance.
    test
        What is tested.
    environment
        Of torchrun or srun; None: that of the process.
    places
        Of each node its leaf and pod.

    Raises
    ------
    Skip
        If this node does not take part.
    """
    from peerwatch_checks.multihost.torch_pairs import store_of  # noqa: PLC0415 - loads psutil

    limits = Limits(
        options.join_seconds,
        options.pair_seconds,
        options.partners,
        options.tolerance,
        test.floor,
        time.monotonic() + SHARE_OF_DEADLINE * context.seconds,
    )
    member = take_part(environment, least_nodes=test.least_nodes, too_few=test.too_few)
    devices = gpus_or_cpu(context)
    megabytes = options.gpu_megabytes if devices[0].is_gpu else options.cpu_megabytes
    address = member.address()
    try:
        store = store_of(
            member, options.join_seconds, purpose=test.purpose, port_offset=test.port_offset
        )
        measure = test.measure(
            store,
            [device.name for device in devices],
            address,
            size=min(
                device.fits(test.buffers * megabytes << 20) // test.buffers for device in devices
            ),
            repeats=options.repeats,
        )
        result = Rounds(store, member, context.node, address, measure, limits).run(places)
    except RuntimeError as error:
        yield first_node_gone(member, error)
        return
    yield from outcomes(result, member, test.words)
