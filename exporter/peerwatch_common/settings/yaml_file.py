"""Reads the YAML files that people write, without silent loss and without showing secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


# Settings have some hundred values, a file of all users and their passwords some thousand. Chosen:
# many times that, and still few megabytes.
_MOST_VALUES = 200_000
# No setting is larger than a float can be; Python refuses to write out one of some 14,000 bits.
_MOST_BITS = 1024


class _UniqueKeys(yaml.constructor.SafeConstructor):
    """YAML without silent loss: a key written twice in one mapping is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            # Only scalar keys are comparable; others are refused later as unknown keys.
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"key {key_node.value!r} stands twice (line {line})")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Write merge keys (<<) out; before PyYAML 6.0.4 ten times as many values at every line."""
        super().flatten_mapping(node)
        if len(node.value) > _MOST_VALUES:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(
                f"merge keys (<<) stand for more than {_MOST_VALUES:,} values (line {line})"
            )


class _UniqueKeyLoader(_UniqueKeys, yaml.SafeLoader):
    """In Python: no file is nested too deeply for it, and it says where a mistake is."""


class _FastLoader(_UniqueKeys, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """In C, where PyYAML was built with it: eight times as fast."""


def read_yaml(path: Path, *, is_shipped: bool = False) -> dict[str, Any]:
    """Return the mapping that a YAML file holds; empty for an empty file.

    Parameters
    ----------
    path
        The file.
    is_shipped
        Whether it is a part of the program, which nobody can have made to do harm.

    Raises
    ------
    ConfigError
        If it cannot be read or is something else. The file's content is not in the message, for it
        may be secret.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not YAML: not a UTF-8 text file"]) from error
    try:
        loader = _FastLoader if is_shipped else _UniqueKeyLoader
        data = yaml.load(text, Loader=loader)  # noqa: S506 - both derive from SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: not YAML: {_yaml_problem(error)}"]) from None
    except RecursionError:
        raise ConfigError([f"{path}: is nested too deeply for a file of settings"]) from None
    except (ValueError, OverflowError, ArithmeticError):
        # PyYAML leaves it to Python to read numbers and dates, and their errors show the value.
        raise ConfigError(
            [f"{path}: not YAML: a number or a date in it is none; put text into quotes"]
        ) from None
    except (AttributeError, IndexError, KeyError, TypeError):
        # Such as `!!bool x` or `!!timestamp x`, of which PyYAML makes sure of nothing.
        raise ConfigError([f"{path}: not YAML: a tag (!!) does not suit its value"]) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError([f"{path}: holds {type(data).__name__}, not a mapping of sections"])
    if _is_too_much(data):
        raise ConfigError(
            [
                f"{path}: its aliases (*) or numbers stand for more than {_MOST_VALUES:,} "
                f"values or {_MOST_BITS} bits; write out what is meant"
            ]
        )
    return {str(key): value for key, value in data.items()}


def _is_too_much(data: object) -> bool:
    """Whether settings, aliases written out, are too many, without an end, or absurd numbers."""
    left = _MOST_VALUES
    todo = [data]
    while todo:
        value = todo.pop()
        left -= 1
        if left < 0 or (isinstance(value, int) and value.bit_length() > _MOST_BITS):
            return True
        if isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, list | tuple | set):
            todo += value
        if len(todo) > left:
            return True
    return False


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Return what is wrong and where, without the snippet that PyYAML's own text shows."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"{getattr(error, 'problem', None) or 'cannot be parsed'} (line {mark.line + 1})"
