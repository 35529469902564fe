"""Marks in shared memory what the child is doing, so that its parent knows which GPU hangs it."""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple, Protocol

_BYTES = mmap.PAGESIZE
_PHASE, _GPU, _STEP = range(3)
# In a byte, where a GPU's index plus one stands.
_NO_GPU = 0
_HIGHEST_GPU = 253

# Phases; from the last one on, a collector's place in the list.
IDLE = 0
LIBRARY = 1
FACTS = 2
FIRST_COLLECTOR = 3


class MarkerBytes(Protocol):
    """Bytes that can be written one by one: shared memory, or a bytearray that nobody reads."""

    def __getitem__(self, index: int, /) -> int:
        """Return a byte."""

    def __setitem__(self, index: int, value: int, /) -> None:
        """Write a byte."""


class Activity(NamedTuple):
    """What the child was doing when it was last checked.

    Parameters
    ----------
    phase
        ``IDLE``, ``LIBRARY`` (initialising, listing GPUs), ``FACTS``, else a collector's place in
        the list that the child was given, from ``FIRST_COLLECTOR``.
    gpu
        Index of the GPU it calls, or ``None``.
    step
        Rises with every call, modulo 256: two checks that differ show progress.
    """

    phase: int
    gpu: int | None
    step: int


class ProgressMarker:
    """The writing side; ``at`` is called before every call into the driver, so it is short.

    Parameters
    ----------
    memory
        Where the bytes go.
    """

    __slots__ = ("_memory",)

    def __init__(self, memory: MarkerBytes | None = None) -> None:
        self._memory: MarkerBytes = bytearray(3) if memory is None else memory

    def enter(self, phase: int) -> None:
        """Begin a phase, which concerns no GPU yet."""
        self._memory[_GPU] = _NO_GPU
        self._memory[_PHASE] = phase

    def at(self, gpu: int) -> None:
        """Say that this GPU is called next; -1 if the next call concerns none."""
        memory = self._memory
        memory[_GPU] = gpu + 1 if gpu <= _HIGHEST_GPU else _NO_GPU
        memory[_STEP] = (memory[_STEP] + 1) & 0xFF


class SharedProgressMarker:
    """The reading side: anonymous shared memory whose descriptor the child inherits.

    Attributes
    ----------
    descriptor
        To be handed to the child; -1 once closed.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("peerwatch-driver-progresser")
        os.ftruncate(self.descriptor, _BYTES)
        self._memory = mmap.mmap(self.descriptor, _BYTES)
        # A child that still imports its modules is on its way to the library.
        self._memory[_PHASE] = LIBRARY

    def read(self) -> Activity:
        """Return what the child is doing."""
        phase, gpu, step = self._memory[:3]
        return Activity(phase, gpu - 1 if gpu != _NO_GPU else None, step)

    def close(self) -> None:
        """Give the memory back; the child keeps its own view of it."""
        self._memory.close()
        os.close(self.descriptor)
        self.descriptor = -1


def open_progress_marker(descriptor: int) -> ProgressMarker:
    """Return the writing side of an inherited descriptor.

    Raises
    ------
    OSError
        If the descriptor is no such memory.
    """
    return ProgressMarker(mmap.mmap(descriptor, _BYTES))
