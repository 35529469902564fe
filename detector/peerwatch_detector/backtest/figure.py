"""What the pictures of commands share: their style, and how one becomes an SVG file.

The same figure is the same bytes every time. Text stays text, so that it can be searched.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

SOFT, LINE = "#66707a", "#dfe3e7"

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.color": LINE,
    "svg.fonttype": "none",
    # Ids within the file would be random without it.
    "svg.hashsalt": "peerwatch",
    # A fault's name may hold a dollar.
    "text.parse_math": False,
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.left": False,
}


def style() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and written."""
    return matplotlib.rc_context(_STYLE)


def svg_text(figure: Figure) -> str:
    """Return a figure as the text of an SVG file, without the date or the program."""
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    # Without the head of XML it can stand in an HTML document too.
    return text[text.index("<svg ") :]
