"""The stack is taken down in reverse, whatever happens, and runs the shipped configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from peerwatch_demo.stack.servers import (
    Stack,
    StackError,
    Target,
    alertmanager_config,
    find_program,
    prometheus_config,
)

EXAMPLE = Path(__file__).resolve().parents[3] / "rules" / "alertmanager.example.yaml"
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_an_exception_inside_takes_everything_down_in_reverse(tmp_path: Path) -> None:
    order: list[str] = []
    with pytest.raises(RuntimeError, match="trouble"), Stack(tmp_path) as stack:  # noqa: PT012
        stack.on_stop(lambda: order.append("first"))
        process = stack.start("sleeper", SLEEP)
        stack.on_stop(lambda: order.append("second" if process.alive else "too late"))
        raise RuntimeError("trouble")

    assert ["second", "first"] == order
    assert not process.alive


def test_a_failing_callback_does_not_spare_the_rest(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    process = stack.start("sleeper", SLEEP)
    stack.on_stop(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        stack.stop()

    assert not process.alive


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    stack.start("sleeper", SLEEP)

    stack.stop()
    stack.stop()


def test_a_process_that_dies_before_it_is_ready_is_an_error_with_its_log(tmp_path: Path) -> None:
    dying = [sys.executable, "-c", "raise SystemExit('bad flag')"]

    with Stack(tmp_path) as stack, pytest.raises(StackError, match="bad flag"):
        stack.start("server", dying, ready="http://127.0.0.1:9/")


def test_prometheus_config_labels_every_node_and_loads_the_rules() -> None:
    targets = [
        Target("peerwatch-exporter", "127.0.0.1:1", {"node": "node-0"}),
        Target("peerwatch-exporter", "127.0.0.1:2", {"node": "node-1"}),
        Target("peerwatch-detector", "127.0.0.1:3", {}),
    ]

    config = yaml.safe_load(
        prometheus_config(
            targets, rules=[Path("/r/node.rules.yaml")], alertmanager="http://127.0.0.1:4"
        )
    )

    jobs = {job["job_name"]: job["static_configs"] for job in config["scrape_configs"]}
    assert ["/r/node.rules.yaml"] == config["rule_files"]
    assert [
        {"targets": ["127.0.0.1:1"], "labels": {"node": "node-0"}},
        {"targets": ["127.0.0.1:2"], "labels": {"node": "node-1"}},
    ] == jobs["peerwatch-exporter"]
    assert [{"targets": ["127.0.0.1:3"], "labels": {}}] == jobs["peerwatch-detector"]
    assert ["127.0.0.1:4"] == (
        config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    )


def test_alertmanager_config_changes_only_the_receiver() -> None:
    shipped = yaml.safe_load(EXAMPLE.read_text())

    changed = yaml.safe_load(alertmanager_config(EXAMPLE, "http://127.0.0.1:1234"))

    urls = [
        webhook.pop("url")
        for receiver in changed["receivers"]
        for webhook in receiver.get("webhook_configs", [])
    ]
    for receiver in shipped["receivers"]:
        for webhook in receiver.get("webhook_configs", []):
            webhook.pop("url")
    assert {f"http://127.0.0.1:1234/{name}" for name in ("page", "ticket", "heartbeat")} == set(
        urls
    )
    assert shipped == changed


def test_an_example_without_the_receiver_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "alertmanager.yaml"
    other.write_text("receivers: []\n")

    with pytest.raises(StackError, match=r"no webhook at 'http://127\.0\.0\.1:9099'"):
        alertmanager_config(other, "http://127.0.0.1:1234")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(StackError, match="'no-such-program' is not on PATH"):
        find_program("no-such-program", "nor-this-one")
