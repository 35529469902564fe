"""The NVML library of the simulated node: boards that live, by the wall clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_demo.simulated_node.boards import Board
from peerwatch_demo.simulated_node.node_plan import DRIVER_VERSION, GPUS
from peerwatch_demo.simulated_node.nvml_library import FakeNvml
from peerwatch_demo.simulated_node.nvml_registry import ReturnCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peerwatch_demo.simulated_node.scenario import Scenario

# A GPU that hangs still has a name: its driver remembers.
_REMEMBERED = frozenset(
    f"nvmlDeviceGet{what}"
    for what in ("HandleByIndex_v2", "UUID", "Name", "Serial", "VbiosVersion", "PciInfo_v3")
)
# The answers of a board hold for this long: chosen, one collection asks for many of them.
_SAME_SECONDS = 0.05


class SimulatedNvml(FakeNvml):
    """Answers for a scenario as it stands now.

    Parameters
    ----------
    scenario
        What happens.
    seed
        Decides the differences between boards and the noise.
    start
        Unix time of the demonstration's start.
    onset
        When the scenario's change begins, in seconds after the start.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        start: float,
        onset: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__({"driver_version": DRIVER_VERSION, "gpus": [{}] * GPUS})
        self._boards = [Board(index, scenario, seed, onset) for index in range(GPUS)]
        self._known: dict[int, tuple[float, dict[str, Any]]] = {}
        self._start = start
        self._clock = clock
        # What happened before this process started is no event for it, as with the real driver.
        self._checked = self._seconds()
        self._xids = [(onset + xid.after, xid) for xid in scenario.xids if xid.has_event]

    def gpu(self, index: int, function: str) -> dict[str, Any]:
        """Return a GPU's values; a lost one answers nothing, a hung one never."""
        state = self._boards[index].state(self._seconds())
        if state == "lost":
            raise ReturnCode(pynvml.NVML_ERROR_GPU_IS_LOST)
        while state == "hung" and function not in _REMEMBERED:
            time.sleep(3600)
        return self.board(index)

    def board(self, index: int) -> dict[str, Any]:
        """Return what a GPU would answer now if it worked."""
        seconds = self._seconds()
        known = self._known.get(index)
        if known is None or not 0 <= seconds - known[0] < _SAME_SECONDS:
            known = self._known[index] = (seconds, self._boards[index].answers(seconds))
        return known[1]

    def samples(self, gpu: dict[str, Any], kind: int, since: int) -> list[tuple[int, int]]:
        """Return (microseconds, value) of a GPU's sample buffer after a time, oldest first."""
        index: int = gpu["minor"]
        return self._boards[index].samples(kind, since, self._start, self._seconds())

    def next_event(self, registered: Mapping[int, int], timeout: float) -> tuple[int, int] | None:
        """Return GPU and XID of the next event of the registered GPUs, or None in time."""
        until = time.monotonic() + timeout
        while True:
            self._raise_due()
            left = until - time.monotonic()
            event = super().next_event(registered, max(0.0, min(0.2, left)))
            if event is not None or left <= 0:
                return event

    def _raise_due(self) -> None:
        checked, self._checked = self._checked, self._seconds()
        for due, xid in self._xids:
            if checked < due <= self._checked:
                self.raise_xid(xid.gpu, xid.code)

    def _seconds(self) -> float:
        return self._clock() - self._start
