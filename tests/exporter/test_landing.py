"""The landing page, for people."""

from __future__ import annotations

import platform
from html.parser import HTMLParser

import pytest

from peerwatch_exporter.schedule.runner import CollectorStatus
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.web.landing import Landing, duration

EVIL = "<script>alert('&')</script>"
STATUSES = (
    CollectorStatus("cpu", "CPU time", 1, True, None, 0.00123, 0, 17),
    CollectorStatus("gpm", "activity", 1, True, None, 0.0001, 0, 0),
    CollectorStatus("gpu", "utilisation", 1, False, "deadline_exceeded", 0.8, 125, 0),
    CollectorStatus("kernel", "log", 10, False, "permission_denied", 0.0, 0, 0),
    CollectorStatus("nic", "ports", 1, True, "os_error", 0.002, 0, 5),
    CollectorStatus("xid", "errors", 10, False, None, 0.0, 0, 0),
)


class Outline(HTMLParser):
    """What a browser would make of it: cells by row, links, and whether tags are balanced."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self, html):
        super().__init__()
        self.rows, self.links, self.text, self.open = [], [], [], []
        self.feed(html.decode())
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def landing(statuses=STATUSES, boards=(), **changes):
    values = {
        "version": "1.2.3",
        "node": "node-7",
        "started": 1000.0,
        "clock": lambda: 1000.0 + 3 * 86400 + 4 * 3600 + 59,
        "status": lambda: statuses,
        "boards": lambda: boards,
        "places": {"cpu": "main", "gpu": "driver"},
        "port": lambda: 9401,
    }
    return Landing(**{**values, **changes})


def test_landing_page_says_what_and_where_the_exporter_is():
    outline = Outline(landing().render())
    text = " ".join(outline.text)
    for fact in ("node-7", "1.2.3", platform.python_version(), "3 d 4 h"):
        assert fact in text
    assert [] == outline.open
    assert [
        "/metrics",
        "/metrics/fast",
        "/burst",
        "/spans",
        "/-/healthy",
        "/-/ready",
    ] == outline.links
    assert "metrics_path: /metrics/fast" in text
    assert "node-7:9401" in text


def test_collectors_show_their_state():
    rows = Outline(landing().render()).rows
    assert ["cpu", "ok", "CPU time", "main", "1 s", "1.2 ms", "17"] == rows[1]
    assert [
        "ok",
        "nothing to read here",
        "stuck for 2 min 5 s",
        "failed: permission_denied",
        "in part: os_error",
        "not run yet",
    ] == [row[1] for row in rows[1:]]


def test_gpus_are_listed():
    boards = (GpuIdentity(0, "GPU-aa", "H100", "1", "0000:1b:00.0"), GpuIdentity(5))
    rows = Outline(landing((), boards).render()).rows
    assert [["0", "H100", "0000:1b:00.0", "GPU-aa"], ["5", "", "", ""]] == rows[-2:]


def test_nothing_from_the_node_becomes_markup():
    statuses = (CollectorStatus(EVIL, EVIL, 1, False, EVIL, 0, 0, 0),)
    boards = (GpuIdentity(0, EVIL, EVIL, EVIL, EVIL),)
    html = landing(
        statuses, boards, node=EVIL, version=EVIL, notes=(EVIL,), places={EVIL: EVIL}
    ).render()
    assert b"<script" not in html
    assert [] == Outline(html).open


def test_landing_page_needs_nothing_from_elsewhere():
    html = landing().render().decode()
    assert "http:" not in html
    assert "https:" not in html
    assert "src=" not in html


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (3600, "1 h 0 min"),
        (9e6, "104 d 4 h"),
    ],
)
def test_duration_is_short(seconds, text):
    assert text == duration(seconds)
