"""Counters of what has happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from peerwatch_reliability.accounting.causes import CAUSES
from peerwatch_reliability.accounting.failure_rates import size_class

if TYPE_CHECKING:
    from peerwatch_reliability.report.books import Books


class Totals:
    """Sums that never fall: every attempt that has ended counts once.

    Attributes
    ----------
    failures, lost
        Failures by size and cause; GPU-seconds by cause and order.
    lost_work, recovery
        Seconds.
    """

    def __init__(self) -> None:
        self.failures: Counter[tuple[str, str]] = Counter(
            # Increases of a series that begins with its first failure cannot be seen.
            {("8", cause.name): 0 for cause in CAUSES if not cause.is_proximal}
        )
        self.lost: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.lost_work = self.recovery = 0.0
        self._counted: set[tuple[str, object]] = set()

    def add(self, books: Books) -> None:
        """Count what has ended since the last time."""
        # What ended within the last minutes may still be explained by what is observed later.
        final = books.window.end - 600.0
        ends = {each.key: each.time for each in books.incidents}
        for each in books.incidents:
            if each.time <= final and self._is_new("failure", each.key):
                self.failures[size_class(each.gpus), each.cause] += 1
                self.lost_work += each.lost_seconds
            if each.recovery_seconds is not None and self._is_new("recovery", each.key):
                self.recovery += each.recovery_seconds
        for loss in books.losses:
            is_final = ends.get(loss.root, final + 1) <= final
            if is_final and self._is_new("loss", (loss.key, loss.order)):
                order = "first" if loss.order == 1 else "second"
                self.lost[loss.cause, order] += loss.gpu_seconds

    def _is_new(self, what: str, key: object) -> bool:
        if (what, key) in self._counted:
            return False
        self._counted.add((what, key))
        return True
