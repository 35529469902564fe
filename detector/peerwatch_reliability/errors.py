"""What goes wrong with a source."""

from __future__ import annotations

from peerwatch_common.errors import PeerwatchError


class SourceError(PeerwatchError):
    """A source did not answer as it should; the message says which and how."""
