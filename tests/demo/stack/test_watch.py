"""Every change is told once, from what the servers really answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peerwatch_demo.run import too_busy
from peerwatch_demo.stack.report import Event
from peerwatch_demo.stack.watch import Watcher, fewest_scraped, progress, scraped
from peerwatch_demo.stack.webhook import WebhookReceiver

Message = Callable[..., bytes]


class FakeServers:
    """Answers as Prometheus and the detector do; None while they are down."""

    def __init__(self) -> None:
        self.up = True
        self.candidates: list[tuple[str, str]] = []
        self.findings: list[tuple[str, str]] = []
        self.firing: list[tuple[str, str]] = []

    def __call__(self, url: str) -> Any:
        if not self.up:
            return None
        if url == "http://detector/api/v1/jobs":
            return {
                "jobs": [
                    {"findings": as_json(self.findings), "candidates": as_json(self.candidates)}
                ]
            }
        assert url == "http://prometheus/api/v1/alerts"
        alerts = [
            {"state": "firing", "labels": {"alertname": "PeerwatchFaultyNode", **labels}}
            for labels in as_json(self.firing)
        ]
        other = {"state": "firing", "labels": {"alertname": "PeerwatchWatchdog"}}
        return {"data": {"alerts": [*alerts, other]}}


def as_json(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"node": node, "metric": metric} for node, metric in pairs]


def watcher(servers: FakeServers, receiver: WebhookReceiver) -> Watcher:
    return Watcher(
        "http://prometheus", "http://detector", receiver, fetch=servers, clock=lambda: 5.0
    )


def test_each_step_on_the_way_to_the_page_is_told_once(message: Message) -> None:
    servers = FakeServers()
    with WebhookReceiver(clock=lambda: 4.5) as receiver:
        watching = watcher(servers, receiver)
        servers.candidates = [("node-3", "cpu_usage")]
        first = watching.poll()
        again = watching.poll()
        servers.findings = servers.firing = [("node-3", "cpu_usage")]
        receiver.record("/page", message("firing", "node-3"))
        second = watching.poll()
        silent = watching.poll()

    assert [Event("candidate", 5.0, "node-3", "cpu_usage")] == first
    assert [] == again
    assert [("finding", 5.0), ("alert", 5.0), ("page", 4.5)] == [(e.kind, e.at) for e in second]
    assert [] == silent
    assert [*first, *second] == watching.events


def test_a_candidate_that_comes_back_is_told_again() -> None:
    servers = FakeServers()
    with WebhookReceiver() as receiver:
        watching = watcher(servers, receiver)
        servers.candidates = [("node-3", "cpu_usage")]
        watching.poll()
        servers.candidates = []
        watching.poll()
        servers.candidates = [("node-3", "cpu_usage")]

        assert ["candidate"] == [event.kind for event in watching.poll()]


def test_servers_that_do_not_answer_lose_nothing() -> None:
    servers = FakeServers()
    with WebhookReceiver() as receiver:
        watching = watcher(servers, receiver)
        servers.candidates = [("node-3", "cpu_usage")]
        watching.poll()
        servers.up = False

        assert [] == watching.poll()
        servers.up = True
        assert [] == watching.poll()


def test_scraped_counts_targets_that_answer() -> None:
    def answer(url: str) -> Any:
        assert "peerwatch-exporter" in url
        return {"data": {"result": [{"value": [1.0, "7"]}]}}

    assert 7 == scraped("http://prometheus", "peerwatch-exporter", answer)
    assert 0 == scraped("http://prometheus", "x", lambda _: {"data": {"result": []}})
    assert 0 == scraped("http://prometheus", "x", lambda _: None)


def test_the_fewest_scraped_are_those_of_the_worst_second() -> None:
    def answer(url: str) -> Any:
        assert "min_over_time%28sum%28up" in url
        assert "%5B90s%3A1s%5D" in url
        return {"data": {"result": [{"value": [1.0, "1"]}]}}

    assert 1 == fewest_scraped("http://prometheus", "peerwatch-exporter", 90.2, answer)
    assert fewest_scraped("http://prometheus", "x", 90, lambda _: None) is None


@pytest.mark.parametrize(("fewest", "busy"), [(19, True), (63, False), (64, False), (None, False)])
def test_a_machine_that_was_too_busy_is_told(fewest: int | None, busy: bool) -> None:
    said = too_busy(fewest, 64, " or take a smaller fleet (FLEET=8)")

    assert busy == (said is not None)
    assert said is None or "only 19 of 64 nodes answered Prometheus" in said


def test_progress_is_the_last_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    before = progress(log)
    log.write_text(
        "a warning\nstep=10 loss=3.2 steps_per_second=4.1\nstep=20 loss=2.9 steps_per_second=4\n"
    )

    assert {} == before
    assert {"step": 20.0, "loss": 2.9, "steps_per_second": 4.0} == progress(log)
