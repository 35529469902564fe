"""What an expression must contain, and how many ways it can match, is known when it is loaded."""

from __future__ import annotations

import re

import pytest

from peerwatch_common.signatures.pattern import PatternError, compiled
from signature_tables import shipped_signatures


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("plain text", {(b"plain text",)}),
        (r"left \d{1,3} right", {(b"left ", b" right")}),
        ("(?:first|second) thing", {(b" thing",)}),
        ("(?:first|second)", {(b"first",), (b"second",)}),
        (r"group (?P<name>inner text)\b", {(b"group ", b"inner text")}),
        ("(?:optional )?needed", {(b"needed",)}),
        ("(?i:free) fixed text", {(b" fixed text",)}),
    ],
)
def test_the_fixed_texts_of_an_expression(text: str, literals: set[tuple[bytes, ...]]) -> None:
    assert compiled(text).literals == literals


@pytest.mark.parametrize(
    "text",
    [
        "text (a*)*b",
        "text (?:a|aa)+$",
        "text .*x.*y.*z",
        r"text (\w+\s?)*:",
        "text .{0,2000}.{0,2000}x",
        "text (?:.{0,20}){0,20}x",
    ],
)
def test_what_could_take_too_long_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match="ways to match"):
        compiled(text)


@pytest.mark.parametrize(
    "text", [r"from (?P<a>\d+) to (?P<b>[^>]+)> end .*", "text .{0,200}from.{0,200}to"]
)
def test_what_ends_at_one_place_is_accepted(text: str) -> None:
    assert isinstance(compiled(text).expression, re.Pattern)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(", "no regular expression"),
        ("aei", "no fixed text"),
        (r"\d+", "no fixed text"),
        ("x" * 1001, "more than 1000"),
        ("größer", "not ASCII"),
        ("(?i)text", "ignores case"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PatternError, match=problem):
        compiled(text)


def test_what_ships_and_is_not_checked_at_each_start_is_safe() -> None:
    shipped = shipped_signatures().signatures
    assert len(shipped) > 100
    for each in shipped:
        for pattern in each.patterns:
            assert compiled(pattern.text, needs_literal=not each.exception) == pattern
            assert pattern.expression.groups <= 8
