"""A body in pieces, most of which are the very bytes of the body before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Pieces:
    """A body that nobody puts together unless it is sent as it is.

    Parameters
    ----------
    pieces
        One after the other they are the body; each begins as no other one does, such as with the
        name of its metric.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def decode(self) -> str:
        """Return the whole body as text."""
        return bytes(self).decode()
