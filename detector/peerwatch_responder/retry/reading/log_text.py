"""A log as it was read: its beginning and its end, where it is long."""

from __future__ import annotations

import re
from dataclasses import dataclass

# rank-3.log, rank_3, rank3.err; stdout of rank 3 of torchrun: attempt_0/3/stdout.log.
_RANK = re.compile(r"(?:^|[/._-])rank[-_.]?(\d{1,6})(?!\d)|attempt_\d{1,4}/(\d{1,6})/")
# Texts of programs have few control characters other than these.
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}) + b"\x7f"
# Chosen: well above a text that has a word in another encoding, well below a file of numbers.
_BINARY_RATIO = 0.15
# Chosen: hundreds of lines, from the beginning on.
_SAMPLE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogText:
    """One log of a job.

    Parameters
    ----------
    name
        Where it is from: a path, ``-``, or a pod and its container.
    head
        Its first bytes; all of them unless something was left out.
    tail
        Its last bytes after what was left out.
    skipped_bytes
        How many were left out between the two.
    rank
        The rank that wrote it; None: unknown, or several.
    node
        The node that it was written on; empty: unknown, or several.
    identity
        Differs between two attempts that wrote the same bytes, such as the time of a file.
    """

    name: str
    head: bytes
    tail: bytes = b""
    skipped_bytes: int = 0
    rank: int | None = None
    node: str = ""
    identity: str = ""

    @property
    def read_bytes(self) -> int:
        """How much of it was read."""
        return len(self.head) + len(self.tail)

    @property
    def is_binary(self) -> bool:
        """Whether it is no text: most of what a log has cannot be in it."""
        sample = (self.head + self.tail)[:_SAMPLE_BYTES]
        # UTF-16 has a zero in every character, and a hole in a file is nothing but zeros.
        plain = sample.replace(b"\0", b"")
        if not plain:
            return bool(sample)
        odd = len(plain) - len(plain.translate(None, _CONTROL))
        # A word in another encoding is some of them, a file of numbers half of all.
        odd += plain.decode("utf-8", "replace").count("\ufffd")
        return odd > _BINARY_RATIO * len(plain)


def rank_in_name(name: str) -> int | None:
    """Return the rank that a path names; None: none."""
    found = max(_RANK.finditer(name), key=lambda each: each.start(), default=None)
    return None if found is None else int(found[1] or found[2])
