"""Reads once in some seconds what changes rarely or slowly, in a collector that runs more often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

# Ticks of the clock may come a little early.
_EARLY_SECONDS = 0.5

T = TypeVar("T")


class Rarely(Generic[T]):
    """Keeps what was read until it is due again.

    Parameters
    ----------
    seconds
        How often it is read.
    monotonic
        Clock for that.
    turn
        So many seconds sooner the second time, so that not all that is read rarely is read in the
        same second.
    """

    def __init__(self, seconds: float, monotonic: Callable[[], float], *, turn: int = 0) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._turn = turn
        self._of: tuple[object, ...] = ()
        self._due: float | None = None
        self._kept: T

    def __call__(self, read: Callable[[], T], *of: object) -> T:
        """Return what was read last.

        It is read again when it is due, when the last time failed, and when it would be read of
        other things.

        Parameters
        ----------
        read
            Reads it.
        of
            What it is read of.
        """
        now = self._monotonic()
        if self._due is not None and now < self._due and of == self._of:
            return self._kept
        turn, self._due = (self._turn if self._due is None else 0), None
        self._kept = read()
        self._of, self._due = of, now + self._seconds - turn - _EARLY_SECONDS
        return self._kept

    def again(self) -> None:
        """Have it read at the next call."""
        self._due = None
