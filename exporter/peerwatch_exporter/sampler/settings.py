"""The settings of the sampler process, handed over at its start as one JSON argument."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from peerwatch_exporter.settings.config import ExporterConfig


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """The settings of one sampler process, in seconds.

    Parameters
    ----------
    sysfs
        Where sysfs is mounted.
    interval_seconds
        Time between two samples, as configured.
    window_seconds
        What statistics cover.
    history_seconds
        How far back raw samples are kept.
    line_rate_ratio
        Part of the link's speed from which a sample counts as at line rate.
    max_cpu_ratio
        CPU time per second that the process may use; above it the interval is stretched.
    counters, devices
        Names to read; no devices means all.
    exclude_devices
        Patterns of devices that are never touched.
    retry_seconds
        After this long a file that could not be read, or a new port, is tried again.
    """

    sysfs: str
    interval_seconds: float
    window_seconds: int = 15
    history_seconds: float = 15.0
    line_rate_ratio: float = 0.9
    max_cpu_ratio: float = 0.05
    counters: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    exclude_devices: tuple[str, ...] = ()
    retry_seconds: float = 10.0

    @classmethod
    def from_config(cls, config: ExporterConfig, sysfs: Path) -> SamplerSettings | None:
        """Return the settings that the exporter's configuration asks for; None for no sampler."""
        sampler = config.sampler
        if sampler.interval_milliseconds is None:
            return None
        return cls(
            sysfs=str(sysfs),
            interval_seconds=sampler.interval_milliseconds / 1000,
            window_seconds=sampler.window_seconds,
            history_seconds=sampler.history_seconds,
            line_rate_ratio=sampler.line_rate_ratio,
            max_cpu_ratio=sampler.max_cpu_ratio,
            counters=tuple(sampler.counters),
            devices=tuple(sampler.devices),
            exclude_devices=tuple(config.nic.exclude),
        )

    def to_json(self) -> str:
        """Return the settings as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SamplerSettings:
        """Return the settings of such a text."""
        values = json.loads(text)
        for name in ("counters", "devices", "exclude_devices"):
            values[name] = tuple(values[name])
        return cls(**values)
