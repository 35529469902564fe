"""Files of settings that make a parser fail, or stand for more than they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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


def flatten_twice(loader: yaml.SafeLoader, node: yaml.MappingNode) -> None:
    """Write merge keys out as PyYAML did up to 6.0.3: what is merged twice is there twice."""
    merged = []
    for key, value in list(node.value):
        if key.tag == "tag:yaml.org,2002:merge":
            node.value.remove((key, value))
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                loader.flatten_mapping(each)
                merged += each.value
    node.value = merged + node.value


def test_merge_keys_are_taken_and_do_not_multiply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4}]}\n")
    taken = {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2, "z": 4}}
    assert taken == read_yaml(path)

    monkeypatch.setattr(yaml.SafeLoader, "flatten_mapping", flatten_twice)
    assert taken == read_yaml(path)
    path.write_text(
        "a0: &a0 {k: v}\n"
        + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 12))
    )
    with pytest.raises(ConfigError, match=r"merge keys \(<<\) stand for more than 200,000 values"):
        read_yaml(path)


@pytest.mark.parametrize("value", ["3", "[1, 2]", "text"])
def test_a_merge_key_without_a_mapping_is_one_sentence(tmp_path: Path, value: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(f"a:\n  <<: {value}\n")
    with pytest.raises(ConfigError, match="for merging, but found scalar") as caught:
        read_yaml(path)
    assert 1 == len(str(caught.value).splitlines())


def test_a_file_of_the_program_is_read_as_any_other_and_a_key_twice_is_a_mistake(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shipped.yaml"
    path.write_text("first: {second: [1, 2.5, 'text', null, yes]}\nmerged: &a {b: 1}\nc: *a\n")
    assert read_yaml(path, is_shipped=True) == read_yaml(path)
    path.write_text("first: 1\nfirst: 2\n")
    with pytest.raises(ConfigError, match="stands twice"):
        read_yaml(path, is_shipped=True)
