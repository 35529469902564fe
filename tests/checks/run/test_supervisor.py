"""A check ends in time with everything that it started, whatever it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from checks_program import FAULTY
from peerwatch_checks.run.process_tree import adopt_orphans
from peerwatch_checks.run.supervisor import Finished, supervised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def job(check: str, **options: str) -> dict[str, Any]:
    return {
        "check": check,
        "path": str(FAULTY / "suite_of_faults.py"),
        "active": True,
        "options": options,
        "node": "n1",
        "attempt": 0,
        "gpus": None,
        "earlier": {},
        "usual": {},
        "peers": {},
        "procfs": "/proc",
        "sysfs": "/sys",
        "rootfs": "/",
    }


def finished(check: str, seconds: float = 300, **given: Any) -> Finished:
    return supervised(job(check), seconds, grace_seconds=0.2, **given)


def gone(pids: list[int]) -> bool:
    """Whether processes have ended; one that nobody waited for yet has."""
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            pass
    return True


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within two minutes")


def test_a_check_that_hangs_is_ended_and_what_it_said_is_kept() -> None:
    found = finished("hangs", 1.0)

    assert "did not end within 1 s and was ended" in found.problem
    assert {"first"} >= {outcome.device for outcome in found.outcomes}


@pytest.fixture
def adopting() -> Iterator[None]:
    """Adopt orphans as the program does."""
    adopt_orphans()
    yield
    adopt_orphans(adopt=False)


@pytest.mark.usefixtures("adopting")
def test_children_that_ignore_sigterm_end_too_wherever_they_went(tmp_path: Path) -> None:
    file = tmp_path / "pids"

    def three() -> str:
        return "the test" if file.exists() and len(file.read_text().split()) == 3 else ""

    found = supervised(job("has_children", file=str(file)), 300, grace_seconds=0.2, stopped=three)

    pids = [int(pid) for pid in file.read_text().split()]
    assert ("It was ended: the test.", 3) == (found.problem, len(pids))
    wait_for(lambda: gone(pids))


@pytest.mark.usefixtures("adopting")
def test_children_that_a_check_leaves_behind_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pids"
    monkeypatch.setenv("ENDS_AT_ONCE", "1")

    found = supervised(job("has_children", file=str(file)), 300, grace_seconds=0.2)

    pids = [int(pid) for pid in file.read_text().split()]
    assert [("pass", "")] == [(each.status, found.problem) for each in found.outcomes]
    assert 3 == len(pids)
    wait_for(lambda: gone(pids))


def test_a_check_that_crashes_says_how_and_its_last_words() -> None:
    found = finished("crashes")

    assert ["first"] == [outcome.device for outcome in found.outcomes]
    assert "Its process ended by signal 11: going down." == found.problem


@pytest.mark.parametrize(
    ("check", "status", "message"),
    [
        ("raises", "error", "ZeroDivisionError: nobody expects this"),
        ("skips", "skipped", "There is nothing to test."),
        ("prints", "pass", "It printed."),
    ],
)
def test_what_a_check_raises_and_prints(check: str, status: str, message: str) -> None:
    found = finished(check)

    assert [(status, message)] == [(each.status, each.message) for each in found.outcomes]
    assert "" == found.problem


def test_a_check_that_talks_without_end_is_ended() -> None:
    found = finished("talks_without_end")

    assert "said more than a check may" in found.problem
    assert 0 < len(found.outcomes) < 10_000


def test_a_status_that_there_is_not_is_an_error() -> None:
    (outcome, *_rest) = finished("says_nonsense").outcomes

    assert ("error", True) == (outcome.status, "'great'" in outcome.message)


def test_the_folder_of_a_check_is_its_own_and_is_removed(tmp_path: Path) -> None:
    (outcome,) = finished("writes", work=tmp_path).outcomes

    assert outcome.message.startswith(str(tmp_path))
    assert [] == list(tmp_path.iterdir())


def test_what_a_user_set_for_nccl_is_not_for_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    from peerwatch_checks.run.supervisor import _environment

    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("OTHER", "1")

    assert {"OTHER"} == {"NCCL_P2P_DISABLE", "OTHER"} & set(_environment())
