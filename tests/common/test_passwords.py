"""Logins: what is remembered, and that wrong ones cost little."""

from __future__ import annotations

import base64
import threading

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.web import passwords
from peerwatch_common.web.passwords import (
    REMEMBER_SECONDS,
    REMEMBER_WRONG_SECONDS,
    Logins,
    Verdict,
)
from web_client import Clock, hash_of

HASHES = {"prometheus": hash_of("secret"), "operator": hash_of("ópera:a", cost=5)}


def header(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Checks:
    """Counts what bcrypt is asked, and answers as it does."""

    def __init__(self, monkeypatch):
        self.hashes = []
        self._real = bcrypt.checkpw
        monkeypatch.setattr(passwords.bcrypt, "checkpw", self._check)

    def _check(self, password, hashed):
        self.hashes.append(hashed)
        return self._real(password, hashed)


@pytest.fixture
def checks(monkeypatch):
    return Checks(monkeypatch)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def logins(clock):
    return Logins(HASHES, clock, lambda _: None)


@pytest.mark.parametrize(
    ("user", "password", "verdict"),
    [
        ("prometheus", "secret", Verdict.RIGHT),
        ("operator", "ópera:a", Verdict.RIGHT),
        ("prometheus", "Secret", Verdict.WRONG),
        ("prometheus", "", Verdict.WRONG),
        ("prometheus", "secret\0", Verdict.WRONG),
        ("operator", "secret", Verdict.WRONG),
        ("nobody", "secret", Verdict.WRONG),
    ],
)
def test_login_is_checked(logins, user, password, verdict):
    assert verdict == logins.check(header(user, password))


def test_long_password_counts_as_far_as_bcrypt_goes(clock):
    logins = Logins({"a": hash_of(72 * "x")}, clock, lambda _: None)
    assert Verdict.RIGHT == logins.check(header("a", 100 * "x"))
    assert Verdict.WRONG == logins.check(header("a", 71 * "x"))


def test_right_login_is_checked_once_while_it_is_used(logins, checks, clock):
    for _ in range(5):
        assert Verdict.RIGHT == logins.check(header("prometheus", "secret"))
        clock.now += REMEMBER_SECONDS - 1
    assert 1 == len(checks.hashes)
    clock.now += 2
    assert Verdict.RIGHT == logins.check(header("prometheus", "secret"))
    assert 2 == len(checks.hashes)


def test_wrong_login_that_comes_again_is_not_checked_again(logins, checks, clock):
    for _ in range(50):
        assert Verdict.WRONG == logins.check(header("prometheus", "wrong"))
    assert 1 == len(checks.hashes)
    clock.now += REMEMBER_WRONG_SECONDS + 1
    assert Verdict.WRONG == logins.check(header("prometheus", "wrong"))
    assert 2 == len(checks.hashes)


def test_unknown_user_is_checked_as_dearly_as_a_known_one(logins, checks):
    assert Verdict.WRONG == logins.check(header("nobody", "secret"))
    (hashed,) = checks.hashes
    assert hashed.startswith(b"$2b$05$")


def test_what_is_remembered_is_bounded(logins, monkeypatch):
    monkeypatch.setattr(passwords.bcrypt, "checkpw", lambda *_: False)
    for number in range(2000):
        logins.check(header("prometheus", str(number)))
    assert len(logins._wrong._added) <= passwords._REMEMBERED


def test_flood_of_wrong_passwords_is_checked_one_by_one_and_stops_no_known_scraper(
    clock, monkeypatch
):
    resting, rested = threading.Semaphore(0), threading.Event()

    def sleep(seconds):
        resting.release()
        assert rested.wait(60)

    logins = Logins(HASHES, clock, sleep)
    assert Verdict.RIGHT == logins.check(header("prometheus", "secret"))
    monkeypatch.setattr(passwords, "WAIT_SECONDS", 0.05)
    flood = [
        threading.Thread(target=logins.check, args=(header("prometheus", str(number)),))
        for number in range(8)
    ]
    flood[0].start()
    assert resting.acquire(timeout=300)
    for thread in flood[1:]:
        thread.start()
    for thread in flood[1:]:
        thread.join(60)
    # Nobody else's password was looked at, and who is known comes in at once.
    assert not resting.acquire(blocking=False)
    assert Verdict.BUSY == logins.check(header("operator", "ópera:a"))
    assert Verdict.RIGHT == logins.check(header("prometheus", "secret"))
    rested.set()
    flood[0].join(60)
    assert Verdict.RIGHT == logins.check(header("operator", "ópera:a"))


def test_rest_after_a_wrong_password_is_a_multiple_of_its_check(monkeypatch):
    clock, rests = Clock(), []

    def check(*_):
        clock.now += 2
        return False

    monkeypatch.setattr(passwords.bcrypt, "checkpw", check)
    Logins(HASHES, clock, rests.append).check(header("prometheus", "wrong"))
    assert [2 * passwords.REST_FACTOR] == rests


@given(st.text() | st.binary().map(lambda data: "Basic " + base64.b64encode(data).decode()))
def test_no_header_raises(text):
    logins = Logins({"prometheus": HASHES["prometheus"]}, sleep=lambda _: None)
    assert Verdict.WRONG == logins.check(text)
