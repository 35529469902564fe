"""Writes an order of metrics into a configuration file and leaves everything else as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from peerwatch_detector.config import DetectorConfig

SettingPath = tuple[str, str]


def order_setting(config: DetectorConfig) -> SettingPath:
    """Return the section and key that the order in force is read from.

    ``minder.metrics`` counts for method minder only, and only while ``metrics.enabled`` is not
    set.
    """
    if config.metrics.enabled is None and config.method_config.default_metrics is not None:
        return config.method, "metrics"
    return "metrics", "enabled"


def snippet(setting: SettingPath, order: Sequence[str], comment: str) -> str:
    """Return a configuration file that sets the order and nothing else."""
    section, key = setting
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return f"{head}{section}:\n  {key}:\n{_block(order, 4)}\n"


def merged(text: str, setting: SettingPath, order: Sequence[str]) -> tuple[str, bool]:
    """Set the order in the text of a configuration file.

    Parameters
    ----------
    text
        YAML with a mapping at its top, or nothing.
    setting
        Section and key.
    order
        Names of the metrics.

    Returns
    -------
    tuple[str, bool]
        The new text, and whether it is the old one but for the key. Where the text cannot be
        changed in place (aliases, unusual layout) it is written anew, without its comments.
    """
    section, key = setting
    wanted: dict[str, Any] = dict(yaml.safe_load(text) or {})
    wanted[section] = dict(wanted.get(section) or {}) | {key: list(order)}
    try:
        changed = _changed(text, setting, order)
        if yaml.safe_load(changed) == wanted:
            return changed, True
    except yaml.YAMLError:
        pass
    # Legible if possible: a few characters come back as others unless they are escaped.
    plain, escaped = (
        yaml.safe_dump(wanted, sort_keys=False, allow_unicode=unicode) for unicode in (True, False)
    )
    return plain if yaml.safe_load(plain) == wanted else escaped, False


def _changed(text: str, setting: SettingPath, order: Sequence[str]) -> str:
    """Return the text with the value of the key replaced or inserted."""
    name, key = setting
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    section = _entry(root, name)
    body = section[1] if section else None
    if not isinstance(body, yaml.MappingNode) or not body.value:
        # No such section, or one without a single key, which then is of no use.
        if section is not None:
            text = text[: section[0].start_mark.index] + text[_end(section[1]) :]
        space = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{space}{name}:\n  {key}:\n{_block(order, 4)}\n"
    entry = _entry(body, key)
    if entry is None:
        first = body.value[0][0].start_mark
        if body.flow_style:
            new = f"{key}: {_flow(order)}, "
        else:
            new = f"{key}:\n{_block(order, first.column + 2)}\n{' ' * first.column}"
        return text[: first.index] + new + text[first.index :]
    begin = entry[0].end_mark.index
    column = entry[0].start_mark.column
    new = f": {_flow(order)}" if body.flow_style else f":\n{_block(order, column + 2)}"
    return text[:begin] + new + text[_end(entry[1]) :]


def _entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of a key and of its value in a mapping."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((pair for pair in node.value if pair[0].value == key), None)


def _end(node: yaml.Node) -> int:
    """Return where a value ends; the mark of a block list is beyond the comments after it."""
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _block(order: Sequence[str], column: int) -> str:
    return "\n".join(f"{' ' * column}- {name}" for name in order)


def _flow(order: Sequence[str]) -> str:
    return f"[{', '.join(order)}]"
