"""Reads Slurm's accounting."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from peerwatch_reliability.records import Jobs
from peerwatch_reliability.sources.slurm.command import lines_of
from peerwatch_reliability.sources.slurm.node_events import event_arguments, read_events
from peerwatch_reliability.sources.slurm.sacct import SEPARATOR, read_sacct, sacct_arguments

if TYPE_CHECKING:
    from peerwatch_reliability.records import Window
    from peerwatch_reliability.settings.config import SlurmConfig


def read_slurm(config: SlurmConfig, window: Window, history: Window) -> Jobs:
    """Return the runs of jobs of a window, and the times out of service of a longer one.

    Raises
    ------
    SourceError
        If Slurm could not be asked.
    """
    how = (config.folder, config.configuration, config.timeout_seconds)
    separator = f"{SEPARATOR}{secrets.token_hex(8)}{SEPARATOR}"
    lines = lines_of(*how, "sacct", *sacct_arguments(window, separator))
    told = read_sacct(lines, config.gpus_per_node, separator)
    events = read_events(lines_of(*how, "sacctmgr", *event_arguments(history)))
    missing = []
    if told.unreadable:
        missing.append(f"{told.unreadable} rows of sacct cannot be read and are left out")
    if told.rows and not any(row.gpus for row in told.rows):
        missing.append(
            "Slurm accounts no GPUs (AccountingStorageTRES=gres/gpu), so GPU-hours are 0; "
            "slurm.gpus_per_node gives them"
        )
    return Jobs(told.rows, events, tuple(missing))
