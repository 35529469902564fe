"""The report as one view for a browser or a printer: no script, nothing from elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2

from peerwatch_reliability import __version__
from peerwatch_reliability.report.text import (
    again_text,
    ettr_text,
    incidents_text,
    number_text,
    optimum_text,
    rate_text,
    scaling_text,
    threshold_lines,
    worth_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
# In pixels, chosen by eye, like those below.
_WIDTH, _HEIGHT = 640.0, 240.0
# For the hours on the left, and the sizes below.
_LEFT, _TOP, _BOTTOM = 72.0, 16.0, 48.0
# Between the axis and the first size.
_INDENT = 32.0


class Mark(NamedTuple):
    """One size of job in the picture: its place, its interval and the 1/N line, in pixels."""

    x: float
    y: float | None
    low: float
    high: float
    line: float | None
    label: str


def view_of(document: Mapping[str, Any]) -> bytes:
    """Return the view, as UTF-8; its parameter is what ``document_of`` returns."""
    lost = {
        name: each["first_order"] + each["second_order"]
        for name, each in document["goodput_lost_gpu_hours"].items()
    }
    template = _TEMPLATES.get_template("report.html")
    return template.render(
        document=document,
        version=__version__,
        ettr_text=ettr_text,
        incidents_text=incidents_text,
        number_text=number_text,
        optimum_text=optimum_text,
        rate_text=rate_text,
        scaling_text=scaling_text,
        worth_text=worth_text,
        again_text=again_text,
        thresholds=threshold_lines(document["lemons"]),
        marks=mttf_marks(document["mttf_by_size"]),
        ticks=mttf_ticks(document["mttf_by_size"]),
        lost=sorted(lost.items(), key=lambda entry: -entry[1]),
        most_lost=max(lost.values(), default=0.0) or 1.0,
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
    ).encode()


class Tick(NamedTuple):
    """A line across the picture: its place in pixels, and how many hours it stands for."""

    y: float
    label: str


class _Scale(NamedTuple):
    """The logarithmic axis of hours."""

    bottom: float
    top: float

    @classmethod
    def of(cls, sizes: Sequence[Mapping[str, Any]]) -> _Scale | None:
        """Return the axis that holds all intervals; None: nothing is known."""
        hours = [
            value
            for each in sizes
            if each["gpus"] != "0"
            for value in (each["hours"]["value"], each["hours"]["low"], each["hours"]["high"])
            if value
        ]
        return cls(math.log(min(hours)), math.log(max(hours))) if hours else None

    def up(self, hours: float) -> float:
        """Return where a value stands, in pixels from the top."""
        length = self.top - self.bottom
        share = (math.log(hours) - self.bottom) / length if length > 0 else 0.5
        return _HEIGHT - _BOTTOM - min(1.0, max(0.0, share)) * (_HEIGHT - _TOP - _BOTTOM)


def mttf_ticks(sizes: Sequence[Mapping[str, Any]]) -> list[Tick]:
    """Return a line for each power of ten within the picture."""
    scale = _Scale.of(sizes)
    if scale is None:
        return []
    first, last = (each / math.log(10) for each in scale)
    # Rounded: the logarithm of 1,000 is a little below 3.
    powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
    return [Tick(scale.up(10.0**each), f"{10.0**each:,g} h") for each in powers]


def mttf_marks(sizes: Sequence[Mapping[str, Any]]) -> list[Mark]:
    """Return where the MTTF of each size stands, on logarithmic axes."""
    known = [each for each in sizes if each["gpus"] != "0"]
    scale = _Scale.of(sizes)
    if scale is None:
        return []
    first, last = (math.log(int(each["gpus"])) for each in (known[0], known[-1]))

    def across(gpus: str) -> float:
        share = (math.log(int(gpus)) - first) / (last - first) if last > first else 0.5
        return _LEFT + _INDENT + share * (_WIDTH - _LEFT - 2 * _INDENT)

    up = scale.up
    return [
        Mark(
            across(each["gpus"]),
            up(each["hours"]["value"]) if each["hours"]["value"] else None,
            up(each["hours"]["low"]),
            # Without a bound it ends at the top.
            up(each["hours"]["high"]) if each["hours"]["high"] else _TOP,
            up(each["line_hours"]) if each["line_hours"] else None,
            each["gpus"],
        )
        for each in known
    ]
