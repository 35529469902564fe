"""How long things may take around the driver process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, each for one wait of the manager.

    Parameters
    ----------
    hang
        Past a run's deadline: one single call that shows no progress for this long hangs.
    run
        Past a run's deadline: a run hangs after this long, whatever its progress.
    library
        Initialising the library and listing the GPUs may take this long: without the persistence
        daemon, the first access to a GPU wakes it up.
    death
        A killed process that is not gone after this long is stuck in the driver.
    first_pause, longest_pause
        Between the end of a child and the next attempt: doubled from the first to the longest.
    trust
        A GPU in quarantine returns, and pauses begin at the first again, after this long without
        an error.
    absence
        How often it is checked whether a driver that was absent has come.
    hold
        For how long the last values of GPUs that do answer are shown while they cannot be asked.
    first_start
        For this long after the exporter's own start a late answer is no failure.
    poll
        How often the manager checks its children when no message comes.
    """

    hang: float = 2.0
    run: float = 10.0
    library: float = 30.0
    death: float = 1.0
    first_pause: float = 1.0
    longest_pause: float = 60.0
    stable: float = 30.0
    absence: float = 60.0
    hold: float = 10.0
    first_start: float = 3.0
    poll: float = 1.0
