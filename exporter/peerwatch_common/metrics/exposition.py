"""Turns families into an exposition: Prometheus' text format 0.0.4 or OpenMetrics 1.0.

An exposition has some thousand lines and hardly anything but the numbers changes from one second
to the next, so what stands before the number is made once per series and kept.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from peerwatch_common.metrics.label_length import shortened
from peerwatch_common.metrics.spec import TimedFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from peerwatch_common.metrics.spec import Family, MetricSpec

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_LABEL_ESCAPES = str.maketrans(
    {
        "\\": r"\\",
        '"': r"\"",
        "\n": r"\n",
        # Prometheus takes a zero byte for the end of the exposition.
        "\0": "\ufffd",
    }
)
# Bytes that are no UTF-8, as Python reads them from file names, cannot be written at all.
_NO_TEXT = re.compile("[\ud800-\udfff]")
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_OPENMETRICS_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
# A float takes 24 characters at most, a 64 bit integer 20.
_LONGEST_NUMBER = 24


class Renderer:
    """Renders expositions; one thread at a time.

    Parameters
    ----------
    max_prefixes
        Series whose text is kept. Labels that come and go, such as process ids, would otherwise
        fill the memory; when there are more, all are made anew.
    on_shortened
        Called with the metric and the label for every value that was too long.
    """

    def __init__(
        self,
        max_prefixes: int = 20_000,
        on_shortened: Callable[[str, str], None] = lambda _metric, _label: None,
    ) -> None:
        self._max_prefixes = max_prefixes
        self._on_shortened = on_shortened
        self._prefixes: dict[str, dict[tuple[str, ...], str]] = {}
        self._kept = 0
        self._headers: dict[tuple[str, bool], str] = {}
        # Most families are as they were a second ago: slow sources, facts, counters of errors.
        # By format, and by name.
        self._texts: dict[bool, dict[str, tuple[Family, bytes]]] = {True: {}, False: {}}

    def render(self, families: Iterable[Family | TimedFamily], *, openmetrics: bool) -> bytes:
        """Return the exposition of the families, each metric of which stands there once."""
        return b"".join(self.pieces(families, openmetrics=openmetrics))

    def pieces(self, families: Iterable[Family | TimedFamily], *, openmetrics: bool) -> list[bytes]:
        """Return the exposition by metric; of one that did not change the same bytes as before."""
        if self._kept > self._max_prefixes:
            self._prefixes.clear()
            self._kept = 0
        parts: list[bytes] = []
        texts = self._texts[openmetrics]
        for item in families:
            kept = texts.get(item.spec.name)
            if kept is not None and kept[0] is item:
                parts.append(kept[1])
            elif isinstance(item, TimedFamily):
                lines = self._timed_lines(item, openmetrics)
                parts.append((self._header(item.spec, openmetrics) + "".join(lines)).encode())
            else:
                parts.append(self._text(item, openmetrics))
        if openmetrics:
            parts.append(b"# EOF\n")
        return parts

    def _text(self, item: Family, openmetrics: bool) -> bytes:
        """Return header and lines of a family; nobody changes one that is on a snapshot."""
        texts = self._texts[openmetrics]
        kept = texts.get(item.spec.name)
        if kept is not None and kept[0].rows == item.rows:
            text = kept[1]
        else:
            lines = self._header(item.spec, openmetrics) + "".join(self._lines(item))
            text = lines.encode()
        texts[item.spec.name] = (item, text)
        return text

    def _lines(self, item: Family) -> list[str]:
        prefixes = self._prefixes_of(item.spec)
        lines = []
        for labels, value in item.rows:
            prefix = prefixes.get(labels) or self._keep(item.spec, labels)
            try:
                text = repr(value)
                # As number() does it, without the call: some thousand times a second.
                if text[-1] > "9" or len(text) > _LONGEST_NUMBER:
                    text = number(value)
            except ValueError:
                text = number(value)
            lines.append(f"{prefix}{text}\n")
        return lines

    def _timed_lines(self, item: TimedFamily, openmetrics: bool) -> Iterator[str]:
        prefixes = self._prefixes_of(item.spec)
        for labels, value, time in item.rows:
            prefix = prefixes.get(labels) or self._keep(item.spec, labels)
            milliseconds = round(time * 1000)
            stamp = (
                f"{milliseconds // 1000}.{milliseconds % 1000:03}" if openmetrics else milliseconds
            )
            yield f"{prefix}{number(value)} {stamp}\n"

    def _prefixes_of(self, spec: MetricSpec) -> dict[tuple[str, ...], str]:
        return self._prefixes.setdefault(spec.name, {})

    def _keep(self, spec: MetricSpec, labels: tuple[str, ...]) -> str:
        short = tuple(map(shortened, labels))
        if short != labels:
            for name, value, cut in zip(spec.labels, labels, short, strict=False):
                if value is not cut:
                    self._on_shortened(spec.name, name)
        prefix = self._prefixes_of(spec)[labels] = series_text(spec, short) + " "
        self._kept += 1
        return prefix

    def _header(self, spec: MetricSpec, openmetrics: bool) -> str:
        key = (spec.name, openmetrics)
        if key not in self._headers:
            self._headers[key] = _header(spec, openmetrics)
        return self._headers[key]


def series_text(spec: MetricSpec, labels: tuple[str, ...]) -> str:
    """Return a series as it stands in an exposition: its name and, by name, its labels."""
    pairs = ",".join(
        f'{name}="{_escaped(value)}"'
        for name, value in sorted(zip(spec.labels, labels, strict=False))
    )
    return f"{spec.name}{{{pairs}}}" if pairs else spec.name


def _escaped(value: str) -> str:
    return _NO_TEXT.sub("\ufffd", value.translate(_LABEL_ESCAPES))


def number(value: float) -> str:
    """Return a value as both formats write it: integers with all of their digits."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to write integers of several thousand digits.
        return "+Inf" if value > 0 else "-Inf"
    # Every other text ends in a letter: nan, inf, True.
    if text[-1] <= "9" and len(text) <= _LONGEST_NUMBER:
        return text
    return _unusual(value)


def _unusual(value: float) -> str:
    try:
        real = float(value)
    except OverflowError:
        # A garbled counter; Prometheus would refuse the whole exposition for it.
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(real):
        return "NaN"
    if math.isinf(real):
        return "+Inf" if real > 0 else "-Inf"
    return str(int(real)) if isinstance(value, bool) else repr(real)


def _header(spec: MetricSpec, openmetrics: bool) -> str:
    if not openmetrics:
        text = spec.help.translate(_HELP_ESCAPES)
        return f"# HELP {spec.name} {text}\n# TYPE {spec.name} {spec.kind}\n"
    name = spec.name.removesuffix("_total") if spec.kind == "counter" else spec.name
    text = spec.help.translate(_OPENMETRICS_HELP_ESCAPES)
    return f"# HELP {name} {text}\n# TYPE {name} {spec.kind}\n"
