"""What several driver processes answered, joined for the node as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.snapshot import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from peerwatch_common.metrics.spec import Family

_EXPECTED = "gpus_expected"
_CONFIGURED = "gpus_configured"
_ERRORS = "exporter_nvml_errors_total"
_UNREADABLE = "gpu_unreadable"
_NONE: Mapping[str, str] = {}


def without_gpus(families: Iterable[Family], gpus: frozenset[int]) -> list[Family]:
    """Return the families without the samples of some GPUs, given by index."""
    gone = {str(index) for index in gpus}
    return [_without(item, gone) for item in families] if gone else list(families)


def _without(item: Family, gone: set[str]) -> Family:
    if "gpu" not in item.spec.labels:
        return item
    place = item.spec.labels.index("gpu")
    kept = item.spec.family()
    kept.rows = [row for row in item.rows if row[0][place] not in gone]
    return kept


def is_error_count(item: Family) -> bool:
    """Return whether a family counts failed NVML calls."""
    return item.spec.name == _ERRORS


class NodeView:
    """Remembers, over every restart, which boards there were and which calls failed.

    Parameters
    ----------
    expected_count
        GPUs that the node should have; None: the most that driver or bus ever showed.
    gpus_on_pci
        Returns how many GPUs the PCIe bus shows.
    """

    def __init__(
        self, expected_count: int | None, gpus_on_pci: Callable[[], int] = lambda: 0
    ) -> None:
        self._configured = expected_count
        self._gpus_on_pci = gpus_on_pci
        self._most_seen = 0
        # By uuid, as a reload of the driver may give a board another index; by index without one.
        self._boards: dict[str, tuple[str, ...]] = {}
        self._past_errors: Counter[str] = Counter()

    def expect(self, count: int | None) -> None:
        """Expect so many GPUs from now on, as in the constructor."""
        self._configured = count

    def expected(self) -> int:
        """Return how many GPUs the node should have; 0 if it need not have any."""
        if self._configured is not None:
            return self._configured
        return max(self._most_seen, self._gpus_on_pci())

    def join(
        self,
        collector: str,
        parts: Sequence[Sequence[Family]],
        unreadable: Mapping[str, str] = _NONE,
        *,
        unusable: bool = False,
    ) -> tuple[Family, ...]:
        """Return the families of one collector, of all children that answered for it.

        Parameters
        ----------
        collector
            Its name.
        parts
            What each child answered.
        unreadable
            By GPU index as text, or ``""`` for all: why, in a word, software kept a GPU from being
            asked. Nothing is said of the presence of such a GPU.
        unusable
            No GPU can be asked for a reason that is known.
        """
        families = list(parts[0]) if len(parts) == 1 else merge(f for part in parts for f in part)
        if collector == "gpu":
            return self._with_boards(families, parts, unreadable, unusable=unusable)
        if collector == "health":
            return self._with_expected(families)
        return tuple(families)

    def child_ended(self, families: Iterable[Family]) -> None:
        """Keep the error counts of a child that is gone; ``families`` is its last answer."""
        for item in families:
            if item.spec.name == _ERRORS:
                self._past_errors.update({labels[0]: int(value) for labels, value in item.rows})

    def _with_boards(
        self,
        families: Iterable[Family],
        parts: Sequence[Sequence[Family]],
        reasons: Mapping[str, str],
        *,
        unusable: bool,
    ) -> tuple[Family, ...]:
        """Add every board that does not answer, and sum what is counted for the node."""
        own = {"gpu_info", "gpu_present", "gpus_visible", _UNREADABLE, _ERRORS}
        found = [item for item in families if item.spec.name not in own]
        by_name = {item.spec.name: item for item in families}
        for labels, _ in by_name["gpu_info"].rows if "gpu_info" in by_name else ():
            self._boards[_board(labels)] = labels
        present = family("gpu_present")
        if "gpu_present" in by_name:
            present.rows = list(by_name["gpu_present"].rows)
        answered = {_board(labels) for labels, _ in present.rows}
        taken = {labels[0] for labels, _ in present.rows if labels[1]}
        boards = sorted(self._boards.items(), key=_labels)
        unreadable = self._unreadable(by_name.get(_UNREADABLE), reasons, answered)
        unknown = {labels[0] for labels, _ in unreadable.rows}
        present.rows += [
            (labels[:2], 0)
            for board, labels in boards
            if board not in answered and labels[0] not in unknown and "" not in unknown
        ]
        info, visible = family("gpu_info"), family("gpus_visible")
        # Of two boards with one index, the one that has it now: joins need it to be the only one.
        info.rows = [
            (labels, 1) for board, labels in boards if board in answered or labels[0] not in taken
        ]
        if (present.rows and not unknown) or (unusable and self.expected()):
            visible.rows = [((), sum(value for _, value in present.rows))]
        return (info, present, visible, unreadable, *found, self._errors(parts))

    def _unreadable(
        self, told: Family | None, reasons: Mapping[str, str], answered: set[str]
    ) -> Family:
        """Return the GPUs that software kept from being asked, by the names they had."""
        unreadable = family(_UNREADABLE)
        names = {labels[0]: labels[1] for labels in self._boards.values()}
        rows = {labels[0]: labels for labels, _ in (told.rows if told is not None else ())}
        for index, reason in reasons.items():
            rows.setdefault(index, (index, "", reason))
        for index, uuid, reason in rows.values():
            name = uuid or names.get(index, "")
            if name not in answered or not name:
                unreadable.rows.append(((index, name, reason), 1))
        return unreadable

    def _errors(self, parts: Iterable[Iterable[Family]]) -> Family:
        total = Counter(self._past_errors)
        for part in parts:
            for item in part:
                if item.spec.name == _ERRORS:
                    total.update({labels[0]: int(value) for labels, value in item.rows})
        errors = family(_ERRORS)
        errors.rows = [((code,), count) for code, count in sorted(total.items())]
        return errors

    def _with_expected(self, families: Iterable[Family]) -> tuple[Family, ...]:
        others = []
        for item in families:
            if item.spec.name == _EXPECTED:
                self._most_seen = max(self._most_seen, *(int(value) for _, value in item.rows))
            elif item.spec.name != _CONFIGURED:
                others.append(item)
        expected, configured = family(_EXPECTED), family(_CONFIGURED)
        count = self.expected()
        # A node that never had a GPU, and should have none, says nothing about GPUs.
        if count:
            expected.rows = [((), count)]
        if self._configured is not None:
            configured.rows = [((), self._configured)]
        return (expected, configured, *others)


def _board(labels: tuple[str, ...]) -> str:
    """Return what identifies a board, of the values of its labels gpu and uuid."""
    return labels[1] or labels[0]


def _labels(item: tuple[str, tuple[str, ...]]) -> tuple[str, ...]:
    return item[1]
