"""From the labels of a response's rows to nodes and GPUs; found once for responses that look alike.

An increment brings the same series in the same order as the one before, so nothing has to be done
for each of them again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.decode.grid_writer import (
    GPU,
    LABEL_BYTES,
    LABELS,
    NODE,
    ROWS,
    GridWriter,
)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows of an writer belong to which node and GPU.

    Parameters
    ----------
    digest
        Of all labels and where they stand.
    keys
        Node and GPU of each row of the block.
    order
        The first row of each key, shape (n_keys,); None if these are all rows as they stand.
    shared
        Rows of the keys that have several: the one whose labels sort first, then the others.
    unnamed
        How many rows have no node.
    """

    digest: bytes
    keys: tuple[Key, ...]
    order: NDArray[np.int64] | None
    shared: tuple[tuple[int, ...], ...]
    unnamed: int

    @property
    def rows(self) -> int:
        """How many rows the response had, those without a node left out."""
        return len(self.keys) + self.duplicates

    @property
    def duplicates(self) -> int:
        """How many rows share a key with another."""
        return sum(len(rows) - 1 for rows in self.shared)

    def fold(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Bring rows into one per key; those that share one fill the gaps of the first."""
        for first, *others in self.shared:
            row = values[first]
            for other in others:
                missing = np.isnan(row)
                row[missing] = values[other][missing]
        return values if self.order is None else values[self.order]


def layout_of(writer: GridWriter, *, escaped: bool, known: Layout | None = None) -> Layout:
    """Return the layout of an writer.

    Parameters
    ----------
    writer
        Whose labels the rows have.
    escaped
        Whether labels are the inside of JSON strings.
    known
        That of an earlier response; returned if the labels are the same.

    Raises
    ------
    ReadError
        If a label is no valid text.
    """
    raw = writer.labels[: writer.counts[LABEL_BYTES]].tobytes()
    spans = writer.spans[: writer.counts[ROWS]]
    digest = hashlib.blake2b(raw, digest_size=16, salt=b"escaped" if escaped else b"")
    digest.update(spans.tobytes())
    if known is not None and known.digest == digest.digest():
        return known
    return _new_layout(digest.digest(), raw, spans.tolist(), LabelTexts(escaped))


def _new_layout(digest: bytes, raw: bytes, spans: list[list[int]], names: LabelTexts) -> Layout:
    rows: dict[Key, list[int]] = {}
    unnamed = 0
    for row, span in enumerate(spans):
        node = names.text(raw[span[NODE] : span[NODE + 1]]) if span[NODE] >= 0 else ""
        if not node:
            unnamed += 1
            continue
        gpu = names.text(raw[span[GPU] : span[GPU + 1]]) if span[GPU] >= 0 else ""
        rows.setdefault((node, gpu), []).append(row)
    for same in rows.values():
        same.sort(key=lambda row: raw[spans[row][LABELS] : spans[row][LABELS + 1]])
    order = np.array([same[0] for same in rows.values()], np.int64)
    plain = len(order) == len(spans) and bool((order == np.arange(len(order))).all())
    shared = tuple(tuple(same) for same in rows.values() if len(same) > 1)
    return Layout(digest, tuple(rows), None if plain else order, shared, unnamed)


@dataclass(slots=True)
class LabelTexts:
    """Turns bytes of labels into text, each spelling once.

    Parameters
    ----------
    escaped
        Whether the bytes are the inside of a JSON string.
    """

    escaped: bool
    known: dict[bytes, str] = field(default_factory=dict)

    def text(self, raw: bytes) -> str:
        """Return the text of a label's value; bytes that are not UTF-8 cost no other series.

        Raises
        ------
        ReadError
            If it is no valid text.
        """
        found = self.known.get(raw)
        if found is None:
            plain = raw.decode(errors="replace")
            try:
                found = json.loads(f'"{plain}"') if self.escaped else plain
            except ValueError as error:
                raise ReadError("malformed", f"A label value is no text: {raw[:80]!r}.") from error
            self.known[raw] = found
        return found
