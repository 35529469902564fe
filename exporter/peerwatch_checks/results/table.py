"""Results as a table for a person, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.check_results.record import exit_status
from peerwatch_common.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_common.check_results.record import Record

_ORDER = ("fail", "warn", "error", "skipped", "pass")
# Slurm shows a node's reason in a column. Chosen: what a person still reads there.
_MOST_REASON = 200
_SAID = {0: "passed", 1: "passed with warnings", 2: "FAILED", 3: "not all could be tested"}


def table(records: Sequence[Record]) -> str:
    """Return a line for each record and one for all of them."""
    rows = [("STATUS", "CHECK", "DEVICE", "SEVERITY", "SECONDS", "MESSAGE")]
    rows += [
        (
            record.status.upper() if record.status == "fail" else record.status,
            record.check,
            one_line(record.device) or "-",
            record.severity,
            f"{record.duration_seconds:.1f}",
            one_line(record.message),
        )
        for record in sorted(records, key=lambda each: _ORDER.index(each.status))
    ]
    return aligned(rows) + summary(records) + "\n"


def summary(records: Sequence[Record]) -> str:
    """Return the line for all records: ``FAILED: 1 fail, 7 pass``."""
    counts = {status: sum(each.status == status for each in records) for status in _ORDER}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"{_SAID[exit_status(records)]}: {said or 'no check ran'}"


def drains(record: Record) -> bool:
    """Return whether a record says that its node is to be drained now."""
    return record.status == "fail" and record.severity == "high" and not record.is_about_others


def drain_reason(records: Sequence[Record]) -> str:
    """Return why the node is to be drained, a line of 200 characters at most; empty: it is not.

    What failed with severity low waits until somebody decides, and what the first node of a test of
    several says of others is not about this node.
    """
    found = list(filter(drains, records))
    if not found:
        return ""
    first = found[0]
    name = " ".join(filter(None, (first.check, one_line(first.device))))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    text = f"{name} failed: {one_line(first.message)}"
    return text[: _MOST_REASON - len(more)] + more


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines, with all columns but the last as wide as their widest cell."""
    columns = range(len(rows[0]) - 1)
    widths = [max(len(row[column]) for row in rows) for column in columns]
    return "".join(
        "  ".join([*(f"{row[column]:<{widths[column]}}" for column in columns), row[-1]]) + "\n"
        for row in rows
    )
