"""The view of what was done, for a browser: no script, nothing from elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from peerwatch_responder import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)

_OUTCOMES = {
    "done": "done",
    "begun": "begun; it may have been done",
    "undone": "undone",
    "dry_run": "only looked at",
}
# How a status is drawn; the others are plain.
_TONES = {
    "stuck": "bad",
    "failed": "bad",
    "planned": "warn",
    "acting": "warn",
    "done": "good",
    "passed": "good",
}


def view_of(history: Mapping[str, Any]) -> bytes:
    """Return the view, as UTF-8; its parameter is what ``history_of`` returns."""
    template = _TEMPLATES.get_template("actions.html")
    return template.render(
        **history, version=__version__, outcomes=_OUTCOMES, tones=_TONES, moment=_moment
    ).encode()


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
