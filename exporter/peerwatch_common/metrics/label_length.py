"""Keeps label values short: one of a megabyte, times the series it stands on, ends any scrape."""

from __future__ import annotations

# Prometheus' own limits, where they are set (label_value_length_limit), are of this order; the
# longest that is meant to be there, an explanation's sentence, has some 300.
MAX_LABEL_BYTES = 1024
# UTF-8 takes four bytes at most for a character.
_SURELY_SHORT = MAX_LABEL_BYTES // 4


def shortened(value: str) -> str:
    """Return a label value of at most 1,024 bytes in UTF-8.

    A longer one is cut and ends in a digest of the whole, so that two of them stay two, and the
    same one is the same series after a restart.
    """
    if len(value) <= _SURELY_SHORT:
        return value
    # Bytes that are no UTF-8, as Python reads them from file names, count too.
    whole = value.encode(errors="surrogatepass")
    if len(whole) <= MAX_LABEL_BYTES:
        return value
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, 4 MiB that no usual value needs

    ending = f"...[{len(whole)} bytes, sha256 {sha256(whole).hexdigest()[:16]}]"
    return whole[: MAX_LABEL_BYTES - len(ending)].decode(errors="ignore") + ending
