"""An advice as JSON: names and meanings stay from version to version; names may be added."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peerwatch_responder.retry.answer import EXIT_STATUS

if TYPE_CHECKING:
    from peerwatch_responder.retry.answer import RetryAdvice

# Of the format, counted from 1.
_VERSION = 1


def as_json(advice: RetryAdvice) -> dict[str, Any]:
    """Return an advice as JSON can hold it."""
    plain = asdict(advice)
    return {
        "version": _VERSION,
        "advice": plain.pop("kind"),
        "exit_status": EXIT_STATUS[advice.kind],
        "class": plain.pop("event_class"),
        **plain,
    }
