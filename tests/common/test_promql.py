"""Texts of PromQL."""

from __future__ import annotations

import pytest

from peerwatch_common.promql import any_of, in_one, quoted, selected


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


def test_selectors():
    assert selected("up", "") == "up{}"
    assert selected("up", 'a="b"', 'c!=""', "", d='"') == r'up{a="b",c!="",d="\""}'
    assert any_of("job_id", ["x.y", "z"]) == r'job_id=~"x\\.y|z"'


def test_several_queries_in_one():
    assert in_one("kind", {"a": "up", "b": "x"}) == (
        'label_replace(up, "kind", "a", "", "") or label_replace(x, "kind", "b", "", "")'
    )
