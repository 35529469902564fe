"""A collector of the driver processes, as the runner sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_exporter.driver.manager import Driver
    from peerwatch_exporter.schedule.worker import Report


class DriverWorker:
    """One collector that runs in the driver processes.

    Parameters
    ----------
    driver
        Who runs it.
    name, interval_seconds
        What it is called and how often it is to run.
    """

    def __init__(self, driver: Driver, name: str, interval_seconds: float) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self._driver = driver

    def request(self) -> None:
        """Start a run, or do nothing if one is under way."""
        self._driver.request(self.name)

    def report(self, deadline: float) -> Report:
        """Wait for the run until ``deadline`` and say what came of it."""
        return self._driver.report(self.name, deadline)

    def is_stuck(self) -> bool:
        """Return whether a run has passed its deadline and not returned."""
        return self._driver.is_stuck(self.name)

    def close(self) -> None:
        """Do nothing: the children are ended by the driver's ``stop``."""
