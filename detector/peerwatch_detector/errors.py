"""The exceptions of the detector, beside those of every program.

PeerwatchError
├── ReadError        Prometheus could not be read; carries a reason for the metric
│   └── ThrottledError   it asks to be asked less
├── CaseError        a case folder is missing something or broken
├── TraceError       a trace of operations is no such thing, or broken
├── OutputError      a file that a command is to write cannot be written
├── ModelError       a model bundle cannot be loaded or does not fit
├── TrainingError    too little or broken data to train on
└── BenchError       what was asked for cannot be measured
"""

from __future__ import annotations

import zipfile
import zlib
from typing import Literal

from peerwatch_common.errors import PeerwatchError

ReadFailure = Literal[
    "unreachable",
    "timeout",
    "http_4xx",
    "http_5xx",
    "truncated",
    "malformed",
    "refused",
    "throttled",
    "too_large",
]

# What numpy and zipfile raise on a damaged .npz file, and what reading its content may raise.
DAMAGED_ARCHIVE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    EOFError,
    NotImplementedError,
    OverflowError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


class ReadError(PeerwatchError):
    """Prometheus did not answer a query usefully.

    Parameters
    ----------
    reason
        Short class of the failure, the label of ``peerwatch_read_errors_total``.
    message
        What was asked, what came back, what to look at.
    """

    def __init__(self, reason: ReadFailure, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ThrottledError(ReadError):
    """The server asks to be asked less: 429, or 503 with Retry-After.

    Parameters
    ----------
    message
        What came back, what to look at.
    retry_after
        Seconds that the server asks to wait; 0 if it does not say.
    sent
        Whether a request was sent; if not, it was held back since an earlier one was throttled.
    """

    def __init__(self, message: str, retry_after: float = 0.0, *, sent: bool = True) -> None:
        super().__init__("throttled", message)
        self.retry_after = retry_after
        self.sent = sent


class CaseError(PeerwatchError):
    """A case folder (``case.json`` and ``samples.npz``) is incomplete or contradicts itself."""


class TraceError(PeerwatchError):
    """A file is no trace of operations, lacks something, or contradicts itself."""


class OutputError(PeerwatchError):
    """A file that a command is to write cannot be written."""


class ModelError(PeerwatchError):
    """A model bundle is missing, broken, or made for other settings."""


class TrainingError(PeerwatchError):
    """The data cannot train a model: too few nodes or samples, constant, or not finite."""


class PrepareError(PeerwatchError):
    """The functions cannot be compiled, or not be kept for later starts."""


class BenchError(PeerwatchError):
    """What ``bench`` was asked for cannot be measured."""
