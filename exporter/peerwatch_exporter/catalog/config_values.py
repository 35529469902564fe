"""Values of a node's configuration on their way to be published: clean, short, and so many."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Enough for the longest that tells something, a list of interfaces; the digest keeps two longer
# ones apart.
MOST_CHARACTERS = 128
_DIGEST = 12  # 48 bits: of a million texts hardly two have the same
_NOT_PRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def clean(text: str) -> str:
    """Return a value in one line of at most 128 characters; a longer one ends in its digest."""
    # Nobody needs more to see that they differ, and a megabyte takes time to clean.
    head = _NOT_PRINTABLE.sub(" ", text[: 16 * MOST_CHARACTERS]).strip()
    if len(head) <= MOST_CHARACTERS and len(text) <= 16 * MOST_CHARACTERS:
        return head
    ending = f"... {digest(text)}"
    return head[: MOST_CHARACTERS - len(ending)] + ending


def digest(text: str) -> str:
    """Return a short fingerprint of a text."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, 4 MiB that no usual value needs

    whole = text.encode(errors="surrogatepass")
    return f"sha256 {sha256(whole).hexdigest()[:_DIGEST]}"


class ConfigValues:
    """Values by key, at most so many.

    Parameters
    ----------
    most
        How many are taken.

    Attributes
    ----------
    left_out
        How many were not.
    """

    def __init__(self, most: int) -> None:
        self.left_out = 0
        self._most = most
        self._values: dict[str, str] = {}

    def add(self, key: str, value: str | None) -> None:
        """Add a value; None and an empty one are none."""
        text = "" if value is None else clean(value)
        if not text:
            return
        if len(self._values) >= self._most and key not in self._values:
            self.left_out += 1
            return
        self._values[key] = text

    def add_devices(self, kind: str, aspect: str, values: Mapping[str, str | None]) -> None:
        """Add an aspect of several devices: one value if all agree, else one for each.

        Parameters
        ----------
        kind
            What the key begins with, such as ``gpu``.
        aspect
            What it ends with; without a dot.
        values
            By the device's name.
        """
        known = {
            device: text for device, value in values.items() if value and (text := clean(value))
        }
        if len(set(known.values())) == 1:
            self.add(f"{kind}.{aspect}", next(iter(known.values())))
            return
        for device, text in known.items():
            self.add(f"{kind}.{device}.{aspect}", text)

    def rows(self) -> list[tuple[str, str]]:
        """Return keys and values, in the order of the keys."""
        return sorted(self._values.items())
