"""One match of a signature in a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_common.signatures.signature import Signature


@dataclass(frozen=True, slots=True)
class Event:
    """What one line of a log says.

    Attributes
    ----------
    signature
        What matched; it has the id, the class and the meaning.
    text
        The line without prefixes and escape sequences, 1 KiB at most; neither redacted nor decoded
        (``redacted`` does both).
    timestamp
        When it was written (Unix time), as the line says; None if it does not.
    rank
        The rank that wrote it, of the whole job; None if the line does not say.
    local_rank
        Its number on the node, which is all that torchrun's ``[default3]:`` says.
    peer_rank
        The rank it complains about.
    peer_address
        The address or host name it complains about, without port.
    fields
        What else the signature extracts, such as ``exit_code``, ``xid``, ``operation``, by name.
    cascade
        Whether it follows from an earlier error: by its signature, or as a later exception of a
        chain of Python exceptions.
    """

    signature: Signature
    text: bytes
    timestamp: float | None = None
    rank: int | None = None
    local_rank: int | None = None
    peer_rank: int | None = None
    peer_address: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    cascade: bool = False
