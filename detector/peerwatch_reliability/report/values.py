"""Values of the books as JSON can hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peerwatch_reliability.accounting.time_use import Ettr


def ettr_values(ettr: Ettr) -> dict[str, Any]:
    """Return an ETTR with its bounds and the weakest source that it rests on."""
    low, expected, high = ettr.ratio or (None, None, None)
    return {"value": expected, "low": low, "high": high, "source": ettr.weakest}
