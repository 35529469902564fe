"""The file that says what a node of one kind must have, and how it differs from what it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.yaml_file import read_yaml

# What a kind of machine is known by: a node in which one of these differs is of another kind,
# or has lost so much that only a person can say of which one it is.
KIND = ("cpu.model",)
# A node with GPUs, none of which is of an expected model, is of another kind too. One without GPUs
# has lost them; where none is expected, GPUs are of another kind.
_MODELS, _COUNT = "gpu.model", "gpu.count"
_COUNTED = re.compile(r"(?:^|, )\d+ x ")
_UNREADABLE = "unreadable"
# Keys of services, which a check of their own compares.
SERVICE = "service."
_HEAD = """\
# What a node of this kind has. Written by peerwatch-check config --write-expectation; take out what
# may differ between nodes.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key in which a node is not as expected.

    Parameters
    ----------
    key
        Which.
    expected, found
        Both values; ``found`` is empty for what is not there.
    """

    key: str
    expected: str
    found: str


def write_expectation(path: Path, facts: Mapping[str, str]) -> None:
    """Write a node's inventory as what others of its kind must have.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    text = yaml.safe_dump(dict(facts), sort_keys=True, allow_unicode=True, width=1000)
    path.write_text(_HEAD + text, encoding="utf-8")


def read_expectation(path: Path) -> dict[str, str]:
    """Return what a node must have, by key.

    Raises
    ------
    ConfigError
        If the file cannot be read, holds no mapping of texts, or nothing.
    """
    found = read_yaml(path)
    wrong = [key for key, value in found.items() if isinstance(value, dict | list) or value is None]
    if wrong:
        raise ConfigError([f"{path}: {key}: must be one value" for key in wrong])
    if not found:
        raise ConfigError([f"{path}: expects nothing; write one with --write-expectation"])
    return {str(key): str(value) for key, value in found.items()}


def other_kind(expected: Mapping[str, str], facts: Mapping[str, str]) -> Difference | None:
    """Return in what this machine is of another kind than the expected one."""
    for key in KIND:
        if key in expected and facts.get(key, "") != expected[key]:
            return Difference(key, expected[key], facts.get(key, ""))
    models, found = (_models(each.get(_MODELS, "")) for each in (expected, facts))
    if models and found and not models & found:
        return Difference(_MODELS, expected[_MODELS], facts[_MODELS])
    if expected.get(_COUNT) == "0" and facts.get(_COUNT, "0") != "0":
        return Difference(_COUNT, "0", facts[_COUNT])
    return None


def _models(text: str) -> set[str]:
    """Return the models in a text such as ``7 x NVIDIA H100, 1 x unreadable``."""
    return {each for each in _COUNTED.split(text) if each} - {_UNREADABLE}


def differences(expected: Mapping[str, str], facts: Mapping[str, str]) -> list[Difference]:
    """Return in what a node is not as expected, in order of key; services are not looked at."""
    return [
        Difference(key, value, facts.get(key, ""))
        for key, value in sorted(expected.items())
        if facts.get(key, "") != value and not key.startswith(SERVICE)
    ]


def expected_services(path: Path) -> tuple[str, ...]:
    """Return the services that must run by an expectation file.

    Raises
    ------
    ConfigError
        If the file cannot be read, or says something else of a service than ``running``.
    """
    found = {key: value for key, value in read_expectation(path).items() if key.startswith(SERVICE)}
    wrong = [f"{path}: {key}: {value!r} is not 'running'; leave out what need not run"
             for key, value in found.items() if value != "running"]  # fmt: skip
    if wrong:
        raise ConfigError(wrong)
    return tuple(key.removeprefix(SERVICE) for key in found)
