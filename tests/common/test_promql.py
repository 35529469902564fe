"""Texts of PromQL."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.promql import any_of, in_one, missing_parts, quoted, selected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ml/train", '"ml/train"'),
        ('a"b', r'"a\"b"'),
        (r"a\b", r'"a\\b"'),
        ("a\nb", r'"a\nb"'),
        # Prometheus knows no half of a surrogate pair.
        ("é💥", '"é💥"'),
    ],
)
def test_a_string(text, expected):
    assert quoted(text) == expected


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_quoting_is_undone_by_reading(value):
    # Go's and JSON's escapes agree on the three characters that are escaped.
    assert value == json.loads(quoted(value), strict=False)
    assert "\n" not in quoted(value)


def test_selectors():
    assert selected("up", "") == "up{}"
    assert selected("up", 'a="b"', 'c!=""', "", d='"') == r'up{a="b",c!="",d="\""}'
    assert any_of("job_id", ["x.y", "z"]) == r'job_id=~"x\\.y|z"'


def test_several_queries_in_one():
    assert in_one("kind", {"a": "up", "b": "x"}) == (
        'label_replace(up, "kind", "a", "", "") or label_replace(x, "kind", "b", "", "")'
    )


@pytest.mark.parametrize(
    "omitted",
    ["2 more annotations omitted", "1 more warning annotations omitted"],
    ids=["Prometheus 2.53", "Prometheus 3"],
)
def test_warnings_of_prometheus_say_nothing_is_missing(omitted):
    odd = [f'PromQL info: metric might not be a counter, name: "x{n}"' for n in range(10)]
    assert missing_parts([*odd, omitted]) == []
    assert missing_parts([*odd, omitted, "store down"]) == ["store down"]
