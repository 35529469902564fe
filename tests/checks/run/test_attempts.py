"""What is made of what a check said: a failure counts when it is repeated."""

from __future__ import annotations

import pytest

from peerwatch_checks.check import Outcome, registered
from peerwatch_checks.checks.host import filesystem_space  # noqa: F401 - registers it
from peerwatch_checks.run.attempts import Circumstances, by_device, once, records, repeated
from peerwatch_checks.run.supervisor import Finished
from peerwatch_common.check_results.record import Status, parse_record

CHECK = registered("filesystem_space")
ABOUT = Circumstances("n1", "epilog", "17")


def outcomes(**statuses: Status) -> dict[str, Outcome]:
    return {
        device: Outcome(status, f"{device} {status}.", device)
        for device, status in statuses.items()
    }


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [
        ("fail", "fail", "fail"),
        ("fail", "pass", "warn"),
        ("fail", "warn", "warn"),
        ("fail", "error", "error"),
        ("fail", "skipped", "error"),
        ("fail", None, "error"),
        ("pass", "fail", "warn"),
        ("pass", "pass", "pass"),
        (None, "fail", "warn"),
    ],
)
def test_two_attempts(first: Status | None, second: Status | None, held: Status) -> None:
    found = repeated(outcomes(gpu0=first) if first else {}, outcomes(gpu0=second) if second else {})

    assert held == found["gpu0"].status


def test_who_names_only_what_is_bad_says_of_all_others_that_they_passed() -> None:
    first = {"gpu0": Outcome("fail", "gpu0 fail.", "gpu0", 3.0, severity="high")}
    found = repeated(first, {"": Outcome("pass", "All are well.", value=8.0)})["gpu0"]

    assert ("warn", "gpu0", None, "high") == (
        found.status,
        found.device,
        found.value,
        found.severity,
    )
    assert "error" == repeated(first, {"": Outcome("error", "NVML.")})["gpu0"].status


def test_a_failure_that_could_not_be_repeated_does_not_count() -> None:
    found = once(outcomes(gpu0="fail", gpu1="pass"), "no time")

    assert {"gpu0": "warn", "gpu1": "pass"} == {name: each.status for name, each in found.items()}
    assert "It failed once and was not repeated: no time. gpu0 fail." == found["gpu0"].message


def test_the_worse_of_two_outcomes_about_one_device_holds() -> None:
    said = (Outcome("pass", "a"), Outcome("fail", "b"), Outcome("warn", "c"))

    assert "b" == by_device(Finished(said))[""].message


def test_a_check_that_did_not_end_well_never_passes() -> None:
    assert "error" == by_device(Finished(()))[""].status
    assert "error" == by_device(Finished((Outcome("pass", "a"),), "It crashed."))[""].status


def test_what_does_not_fit_into_a_record_is_made_to_fit() -> None:
    said = (
        Outcome("pass", "a", "number", value=float("inf")),
        Outcome(
            "pass",
            "long\n" * 1000,
            "d" * 300,
            value=1,
            unit="u" * 300,
            expected=0.0,
            versions={f"v{number}": "x" * 300 for number in range(100)},
        ),
    )

    made = records(CHECK, by_device(Finished(said)), ABOUT, started=1, seconds=2, attempts=1)

    assert ["error", "pass"] == [record.status for record in made]
    assert [made[0], made[1]] == [parse_record(record.to_json()) for record in made]


def test_a_record_has_ratio_severity_and_circumstances() -> None:
    outcome = Outcome("fail", "It is slow.", "gpu0", 5.0, "GB/s", 10.0, "high", {"torch": "2"})

    (record,) = records(CHECK, {"gpu0": outcome}, ABOUT, started=5.0, seconds=1.0, attempts=2)

    assert ("filesystem_space", "host", "gpu0", 2) == (*record.key, record.status_value)
    assert (0.5, "high", 2) == (record.value_ratio, record.severity, record.attempts)
    assert ("n1", "epilog", "17") == (record.node, record.mode, record.job_id)
    assert {"peerwatch": "0.1.0", "torch": "2"} == record.versions
