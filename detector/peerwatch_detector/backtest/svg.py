"""What the project's pictures share: their colours and their text."""

from __future__ import annotations

from html import escape

INK, SOFT, LINE = "#20262c", "#66707a", "#dfe3e7"


def text_element(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = INK
) -> str:
    """Return a text of a picture, escaped; ``anchor`` is the side of it that is at ``x``."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{colour}">{escape(text)}</text>'
    )
