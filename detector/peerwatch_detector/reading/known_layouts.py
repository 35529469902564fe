"""Layouts of earlier responses by what was asked: the next most likely has the same."""

from __future__ import annotations

from peerwatch_detector.reading.decode.layout import Layout
from peerwatch_detector.reading.selection import Selection

# Rows of all layouts together: some 200 bytes each, so 200 MB at most. Chosen: the 925,000 series
# of 12,500 nodes with eight GPUs fit (docs/scaling.md).
_MOST_ROWS = 1 << 20


class KnownLayouts:
    """Remembers the last layout of each selection, and drops the oldest ones first.

    ``remember`` needs a lock around it where threads share it; ``get`` does not.
    """

    def __init__(self) -> None:
        self._layouts: dict[Selection, Layout] = {}

    @property
    def selections(self) -> tuple[Selection, ...]:
        """What is remembered, the oldest first."""
        return tuple(self._layouts)

    def get(self, selection: Selection) -> Layout | None:
        """Return the layout of the last response, if there was one."""
        return self._layouts.get(selection)

    def remember(self, selection: Selection, layout: Layout | None) -> None:
        """Keep the layout of a response, and forget those of jobs long gone."""
        if layout is None or self._layouts.get(selection) is layout:
            return
        self._layouts.pop(selection, None)
        self._layouts[selection] = layout
        rows = sum(layout.rows for layout in self._layouts.values())
        while rows > _MOST_ROWS:
            rows -= self._layouts.pop(next(iter(self._layouts))).rows
