"""Tables of the shipped signatures, built once in a process: most of that is their patterns."""

from __future__ import annotations

from functools import cache

from peerwatch_common.signatures.matcher import MatchTable
from peerwatch_common.signatures.signature_set import SignatureSet, load_signatures


@cache
def shipped_signatures() -> SignatureSet:
    """Return the shipped signatures; nobody changes them."""
    return load_signatures()


@cache
def shipped_table(log: str | None = None) -> MatchTable:
    """Return the table of one kind of log, or of all; matchers share it, as in the programs."""
    signatures = shipped_signatures()
    return MatchTable(signatures if log is None else signatures.of_log(log))
