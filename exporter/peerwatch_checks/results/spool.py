"""Writes results into the spool folder, and keeps what each check measured when it passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.results.atomic_file import write_file
from peerwatch_common.check_results.spool import SUFFIX, read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from peerwatch_common.check_results.record import Record

# Of each device: chosen, enough for a median that some bad runs do not move.
_KEPT_RUNS = 20


class Spool:
    """The spool folder of a node.

    Parameters
    ----------
    folder
        Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, check: str, records: Sequence[Record], *, limited: bool) -> None:
        """Replace what the folder holds of a check.

        A check that did not run leaves what it found when it last ran. Where a run was limited to
        some GPUs, the results of the others stay too.

        Raises
        ------
        OSError
            If the folder cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{check}{SUFFIX}"
        known = read_records(path).records
        ran = any(record.status != "skipped" for record in records)
        if not ran and any(record.status != "skipped" for record in known):
            return
        new = {record.device for record in records}
        stays = [record for record in known if limited and record.device not in new]
        write_file(path, _text([*stays, *records]))
        self._remember(check, records)

    def earlier(self, check: str) -> tuple[Record, ...]:
        """Return the records of a check's last runs that passed, oldest first."""
        return read_records(self._history(check)).records

    def _remember(self, check: str, records: Iterable[Record]) -> None:
        measured = [each for each in records if each.status == "pass" and each.value is not None]
        if not measured:
            return
        by_device: dict[str, list[Record]] = {}
        for record in (*self.earlier(check), *measured):
            by_device.setdefault(record.device, []).append(record)
        kept = [record for same in by_device.values() for record in same[-_KEPT_RUNS:]]
        self._history(check).parent.mkdir(exist_ok=True)
        write_file(self._history(check), _text(sorted(kept, key=lambda each: each.started)))

    def _history(self, check: str) -> Path:
        # The exporter reads no folders below.
        return self._folder / "history" / f"{check}{SUFFIX}"


def _text(records: Iterable[Record]) -> str:
    return "".join(f"{record.to_json()}\n" for record in records)
