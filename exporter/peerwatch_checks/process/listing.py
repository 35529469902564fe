"""What ``peerwatch-check list`` prints: each check with what it needs, takes and means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.results.table import aligned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_checks.check import Check

_HEADER = (
    "CHECK",
    "SCOPE",
    "SUITES",
    "NEEDS",
    "TAKES",
    "SEVERITY",
    "WHAT IT DOES; A FAILURE MEANS",
)


def listing(checks: Iterable[Check]) -> str:
    """Return the table of checks."""
    return aligned(
        [
            _HEADER,
            *(
                (
                    check.name,
                    check.scope,
                    ",".join(check.suites) or "-",
                    ",".join(check.needs) or "-",
                    f"{check.seconds:g} s",
                    check.severity,
                    f"{check.summary}; {check.failure}",
                )
                for check in checks
            ),
        ]
    )
