"""Reading settings again: what differs, what only a restart changes, and files with mistakes."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.differences import differences, is_under, with_settings_of
from peerwatch_common.settings.reload import Reload, ReloadFacts
from web_client import eventually


class Listen(BaseModel):
    address: str = "127.0.0.1"
    port: int = 9400


class Settings(BaseModel):
    listen: Listen = Listen()
    severity: dict[int, str] = {}
    seconds: float = 1.0


def plain(settings):
    """Return the same settings as namespaces."""
    return SimpleNamespace(
        listen=SimpleNamespace(**settings.listen.model_dump()),
        severity=settings.severity,
        seconds=settings.seconds,
    )


OTHER = Settings(listen=Listen(port=1), severity={48: "watch"})


@pytest.mark.parametrize("shape", [lambda settings: settings, plain], ids=["pydantic", "plain"])
def test_differences_are_told_by_path(shape):
    assert [] == differences(shape(Settings()), shape(Settings()))
    assert ["listen.port", "severity"] == differences(shape(Settings()), shape(OTHER))


@pytest.mark.parametrize("shape", [lambda settings: settings, plain], ids=["pydantic", "plain"])
def test_some_settings_stay_as_they_were(shape):
    mixed = with_settings_of(shape(OTHER), shape(Settings()), ["listen.port"])

    assert (9400, {48: "watch"}) == (mixed.listen.port, mixed.severity)
    assert [] == differences(shape(OTHER), shape(OTHER.model_copy()))


def test_a_section_stands_for_what_is_in_it():
    assert is_under("listen.port", ["listen"])
    assert is_under("listen.port", ["listen.port"])
    assert not is_under("listeners", ["listen"])


class Program:
    """What a program does with its settings."""

    def __init__(self, late=()):
        self.wanted = Settings()
        self.applied = []
        self.late = late
        self.facts = ReloadFacts()
        self.now = 100.0
        self.reload = Reload(
            Path("settings.yaml"),
            Settings(),
            load=self.load,
            apply=self.apply,
            fixed=("listen",),
            facts=self.facts,
            clock=lambda: self.now,
        )

    def load(self):
        if isinstance(self.wanted, Exception):
            raise self.wanted
        return self.wanted

    def apply(self, settings, changed):
        self.applied.append((settings, list(changed)))
        return self.late


def test_what_differs_is_taken_over_and_what_needs_a_restart_is_told_in_one_line(caplog):
    program = Program(late=["collectors.enabled (gpu)"])
    program.wanted, program.now = OTHER, 200.0

    assert program.reload.read()
    ((settings, changed),) = program.applied
    assert ["severity"] == changed
    assert (9400, {48: "watch"}) == (settings.listen.port, settings.severity)
    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert "listen.port,collectors.enabled (gpu)" in line
    assert (True, 200.0) == (program.facts.successful, program.facts.success_time)
    assert {"success": 1, "failure": 0} == program.facts.readings


def test_what_needs_a_restart_is_told_again_at_the_next_reading(caplog):
    program = Program()
    program.wanted = OTHER
    program.reload.read()
    caplog.clear()

    assert program.reload.read()
    assert 1 == len(program.applied)
    assert "listen.port" in caplog.text


@pytest.mark.parametrize("error", [ConfigError(["port: 70000 is too high"]), OSError("no fork")])
def test_settings_with_mistakes_change_nothing(error, caplog):
    program = Program()
    program.wanted, program.now = error, 200.0

    assert not program.reload.read()
    assert [] == program.applied
    assert Settings() == program.reload.current
    assert (False, 100.0) == (program.facts.successful, program.facts.success_time)
    assert {"success": 0, "failure": 1} == program.facts.readings
    assert "those before stay" in caplog.text
    program.wanted = Settings()
    assert program.reload.read()
    assert program.facts.successful


def test_a_program_that_cannot_follow_says_so_and_tries_all_of_it_again():
    program = Program()
    program.wanted = OTHER
    program.reload._apply = lambda *_: 1 / 0

    assert not program.reload.read()
    program.reload._apply = program.apply
    assert program.reload.read()
    assert ["severity"] == program.applied[0][1]


def test_requests_while_one_is_read_are_one_more_reading():
    program = Program()
    reading, go_on = threading.Event(), threading.Event()
    load = program.reload._load

    def slow():
        reading.set()
        assert go_on.wait(60)
        return load()

    program.reload._load = slow
    program.reload.request()
    assert reading.wait(60)
    for _ in range(20):
        program.reload.request()
    go_on.set()

    eventually(lambda: program.facts.readings["success"] == 2)
    assert not program.reload._asked.is_set()


def test_without_a_file_nothing_is_read(caplog):
    program = Program()
    program.reload._file = None
    caplog.set_level("INFO")
    program.reload.request()

    assert "no settings file" in caplog.text
    assert {"success": 0, "failure": 0} == program.facts.readings
