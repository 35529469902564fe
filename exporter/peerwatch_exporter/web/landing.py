"""The landing page: what this exporter is, how its collectors do, and where to scrape."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peerwatch_exporter.web.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from peerwatch_exporter.sources.gpu.identity import GpuIdentity

# As html.escape does, whose module brings half a megabyte of named characters.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
# Markup up to here is ours; everything from the node goes through escape().
_ENDPOINTS = (
    ("/metrics", "everything, for a scrape every 15 to 30 s"),
    ("/metrics/fast", "what the detector reads, for a scrape every second"),
    ("/burst", "the sampler's recent raw samples as JSON"),
    ("/spans", "single spans of the ranks' last minutes as JSON lines"),
    ("/-/healthy", "200 while the process answers"),
    ("/-/ready", "503 while the metrics mean nothing"),
)


def escape(text: str) -> str:
    """Return a text as it stands in HTML, in attributes too."""
    return text.translate(_ESCAPES)


class Status(Protocol):
    """How one collector does; ``runner.CollectorStatus`` is one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def summary(self) -> str:
        """What it reads."""

    @property
    def interval_seconds(self) -> float:
        """How often it runs."""

    @property
    def success(self) -> bool:
        """Whether its newest run succeeded."""

    @property
    def error(self) -> str | None:
        """What is wrong, in a word."""

    @property
    def duration_seconds(self) -> float:
        """How long its newest run took."""

    @property
    def stuck_seconds(self) -> float:
        """For how long it has not returned."""

    @property
    def series(self) -> int:
        """What it adds to the exposition."""


@dataclass(frozen=True, slots=True)
class Landing:
    """Makes the landing page.

    Parameters
    ----------
    version, node
        The exporter's version and the node's name.
    started, clock
        When the exporter started, and what time it is now (Unix time).
    status
        Returns how each collector does.
    boards
        Returns the GPUs seen.
    places
        For each collector, the process it runs in.
    port
        Returns the port it is served on.
    notes
        Lines about this exporter, such as that it shows a demonstration.
    """

    version: str
    node: str
    started: float
    clock: Callable[[], float]
    status: Callable[[], Sequence[Status]]
    boards: Callable[[], Sequence[GpuIdentity]]
    places: Mapping[str, str]
    port: Callable[[], int]
    notes: tuple[str, ...] = ()

    def render(self) -> bytes:
        """Return the landing page in HTML."""
        statuses, boards = self.status(), self.boards()
        parts = [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>peerwatch-exporter on {escape(self.node)}</title>",
            f"<style>{STYLE}</style></head><body><main>",
            self._header(),
            *(f'<p class="note">{escape(note)}</p>' for note in self.notes),
            _endpoints(),
            _collectors(statuses, self.places),
            _gpus(boards),
            _scraping(f"{self.node}:{self.port()}"),
            "</main></body></html>\n",
        ]
        return "\n".join(parts).encode()

    def _header(self) -> str:
        facts = (
            ("node", self.node),
            ("version", self.version),
            ("Python", ".".join(map(str, sys.version_info[:3]))),
            ("up", duration(self.clock() - self.started)),
        )
        items = "".join(
            f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts
        )
        return f"<header><h1>peerwatch-exporter</h1><dl>{items}</dl></header>"


def duration(seconds: float) -> str:
    """Return a time in the two largest units it has, such as ``3 d 4 h``."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _endpoints() -> str:
    rows = "".join(
        f'<li><a href="{path}">{path}</a><span>{text}</span></li>' for path, text in _ENDPOINTS
    )
    return f'<h2>Endpoints</h2><ul class="endpoints">{rows}</ul>'


def _collectors(statuses: Sequence[Status], places: Mapping[str, str]) -> str:
    header = ("collector", "state", "what it reads", "runs in", "every", "took", "series")
    rows = (
        (
            f"<code>{escape(item.name)}</code>",
            _state(item),
            escape(item.summary),
            escape(places.get(item.name, "")),
            f"{item.interval_seconds:g} s",
            f"{item.duration_seconds * 1000:.1f} ms",
            str(item.series),
        )
        for item in statuses
    )
    return _table("Collectors", header, rows, numbers={"every", "took", "series"})


def _state(item: Status) -> str:
    error = escape(item.error or "")
    if item.stuck_seconds > 0:
        return _badge("bad", f"stuck for {duration(item.stuck_seconds)}")
    if not item.success:
        # Before the first run there is neither a success nor an error.
        return _badge("bad", f"failed: {error}") if error else _badge("idle", "not run yet")
    if error:
        return _badge("part", f"in part: {error}")
    return _badge("good", "ok") if item.series else _badge("idle", "nothing to read here")


def _badge(kind: str, label: str) -> str:
    return f'<span class="state {kind}">{label}</span>'


def _gpus(boards: Sequence[GpuIdentity]) -> str:
    if not boards:
        return "<h2>GPUs</h2><p>None seen.</p>"
    rows = (
        (str(board.index), escape(board.name), escape(board.pci_bus_id), escape(board.uuid))
        for board in boards
    )
    return _table("GPUs", ("gpu", "name", "PCI address", "UUID"), rows, numbers={"gpu"})


def _table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: set[str]
) -> str:
    kinds = [' class="number"' if name in numbers else "" for name in header]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, header, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<h2>{title}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _scraping(address: str) -> str:
    target = escape(address)
    return (
        "<h2>Scraping</h2><p>Two jobs in Prometheus' <code>scrape_configs</code>; add "
        "<code>scheme</code>, <code>tls_config</code> and <code>basic_auth</code> where the web "
        "configuration asks for them.</p><pre>"
        "- job_name: peerwatch\n  scrape_interval: 15s\n  static_configs: "
        f"[{{targets: ['{target}']}}]\n"
        "- job_name: peerwatch-fast\n  scrape_interval: 1s\n  metrics_path: /metrics/fast\n"
        f"  static_configs: [{{targets: ['{target}']}}]</pre>"
    )
