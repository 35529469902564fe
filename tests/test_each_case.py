from __future__ import annotations

from pathlib import Path

import pytest

from each_case import each_case


def test_every_case_that_fails_is_told_with_its_name_and_what_was_wrong() -> None:
    @each_case("number, word", [(1, "one"), pytest.param(2, "six", id="the-second"), (3, "eight")])
    def check(number: int, word: str) -> None:
        assert {1: "one", 2: "two", 3: "three"}[number] == word, f"{number} is no {word}"

    with pytest.raises(AssertionError) as failed:
        check()
    lines = str(failed.value).splitlines()
    assert "2 of 3 cases" == lines[0]
    assert "the-second: 2 is no six" in str(failed.value)
    assert "(3, 'eight'): 3 is no eight" in str(failed.value)
    assert "one" not in str(failed.value)


def test_an_error_fails_as_well_and_a_skipped_case_does_not() -> None:
    @each_case("value", ["", "x", None])
    def check(value: str | None) -> None:
        if value == "x":
            pytest.skip("not this one")
        if value is None:
            raise KeyError

    with pytest.raises(AssertionError, match=r"1 of 3 cases\nNone: KeyError\(\)"):
        check()


def test_a_table_of_which_nothing_is_left_fails() -> None:
    @each_case("value", [])
    def nothing(value: str) -> None:
        raise NotImplementedError

    @each_case("value", ["x"])
    def skipped(value: str) -> None:
        pytest.skip("none")

    for check in (nothing, skipped):
        with pytest.raises(AssertionError, match="no case is left"):
            check()


@each_case("name", ["a", "b"])
def test_fixtures_are_given_as_elsewhere(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert {"a", "b"} >= {path.name for path in tmp_path.iterdir()}
