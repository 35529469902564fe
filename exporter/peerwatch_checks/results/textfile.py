"""Results for the textfile collector of node_exporter, where the exporter does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.results.atomic_file import write_file
from peerwatch_common.check_results.metrics import families
from peerwatch_common.metrics.exposition import Renderer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from peerwatch_common.check_results.record import Record


def write_textfile(path: Path, records: Iterable[Record]) -> None:
    """Write the newest of the records about each device as a ``.prom`` file.

    Parameters
    ----------
    path
        The file; one for all checks of a node, as a metric may stand in one file only.
    records
        Of all checks, so that a run of one does not take away the others.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    newest: dict[tuple[str, str, str], Record] = {}
    for record in sorted(records, key=lambda each: each.started):
        newest[record.key] = record
    ordered = [newest[key] for key in sorted(newest)]
    shown = [family for family in families(ordered) if family.rows]
    write_file(path, Renderer().render(shown, openmetrics=False).decode())
