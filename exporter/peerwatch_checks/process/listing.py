"""What ``peerwatch-check list`` prints: each check with what it needs, takes and means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines, with all columns but the last as wide as their widest cell."""
    columns = range(len(rows[0]) - 1)
    widths = [max(len(row[column]) for row in rows) for column in columns]
    return "".join(
        "  ".join([*(f"{row[column]:<{widths[column]}}" for column in columns), row[-1]]) + "\n"
        for row in rows
    )
