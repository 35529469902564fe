"""Files of settings that make a parser fail, or stand for more than they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.yaml_file import read_yaml

# Ten times as many values at every line: 10^8 at the last.
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
)
TOO_MUCH = "stand for more than"
NO_NUMBER = "a number or a date in it is none"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, TOO_MUCH),
        ("a: &a\n  b: *a\n", TOO_MUCH),
        (f"a: 0x{'f' * 20_000}\n", TOO_MUCH),
        (f"a: {'9' * 5000}\n", NO_NUMBER),
        ("a: 2026-99-99\n", NO_NUMBER),
        ("a: 0x_\n", NO_NUMBER),
        ("a: !!int abc\n", NO_NUMBER),
        ("a: !!bool perhaps\n", "a tag (!!) does not suit its value"),
        ("a: !!timestamp soon\n", "a tag (!!) does not suit its value"),
        (f"a: {'[' * 3000}{']' * 3000}\n", "nested too deeply"),
    ],
    ids=range(10),
)
def test_a_file_that_no_parser_can_take_is_one_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(f"{path}: ")
    assert said in mistake
    assert 1 == len(mistake.splitlines())
    assert len(mistake) < 200 + len(str(path))


def test_aliases_that_are_meant_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("a: &a [1, 2.5, .inf]\nb: {c: *a}\n")
    assert {"a": [1, 2.5, float("inf")], "b": {"c": [1, 2.5, float("inf")]}} == read_yaml(path)
