"""The kernel log of the fake node: a file in the format of /dev/kmsg that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_demo.simulated_node.node_plan import DRIVER_VERSION, SLOTS, addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_demo.simulated_node.files import Files
    from peerwatch_demo.simulated_node.scenario import Scenario

_BOOT = (
    (5, 0.0, "Linux version 6.13.0-demo (builder@demo) (gcc 14.2.0) #1 SMP PREEMPT_DYNAMIC"),
    (6, 11.0, "mlx5_core 0000:18:00.0: firmware version: 28.39.2048"),
    (6, 30.0, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER_VERSION}"),
    (6, 40.0, "nvidia-nvswitch0: open (major=505)"),
)


class KernelLog:
    """Writes the lines that are due.

    Parameters
    ----------
    files
        Where the file ``kmsg`` is written.
    scenario
        Whose lines they are.
    onset
        When the scenario's change begins, in seconds after the start.
    uptime
        How long the node was up when the demonstration started, in seconds.
    """

    def __init__(self, files: Files, scenario: Scenario, onset: float, uptime: float) -> None:
        self._files = files
        self._scenario = scenario
        self._onset = onset
        self._uptime = uptime
        self._sequence = 0
        self._until = float("-inf")

    def create(self) -> None:
        """Write what the kernel logged when it started."""
        self._files.write("kmsg", "")
        self._append((level, boot_seconds, text) for level, boot_seconds, text in _BOOT)

    def update(self, seconds: float) -> None:
        """Write the lines since the last call, in their order."""
        due = sorted(
            (after, level, text)
            for after, level, text in self._lines(seconds - self._onset)
            if self._until < after
        )
        self._until = max(self._until, seconds - self._onset)
        begin = self._uptime + self._onset
        self._append((level, begin + after, text) for after, level, text in due)

    def _lines(self, until: float) -> Iterator[tuple[float, int, str]]:
        """Yield the lines until a time after the onset: when, level, text."""
        for xid in self._scenario.xids:
            if xid.after <= until:
                # The driver leaves the PCI function out.
                bus = SLOTS[xid.gpu].gpu.removesuffix(".0")
                yield xid.after, 3, f"NVRM: Xid (PCI:{bus}): {xid.code}, {xid.text}"
        known = addresses()
        for line in self._scenario.log:
            after = line.after
            # Never more than a reader takes at once, should the node have been asleep.
            for _ in range(1000):
                if after > until:
                    break
                yield after, line.level, line.text.format_map(known)
                if line.every is None:
                    break
                after += line.every

    def _append(self, lines: Iterator[tuple[int, float, str]]) -> None:
        text = ""
        for level, boot_seconds, message in lines:
            self._sequence += 1
            text += f"{level},{self._sequence},{int(boot_seconds * 1e6)},-;{message}\n"
        if text:
            self._files.append("kmsg", text)
