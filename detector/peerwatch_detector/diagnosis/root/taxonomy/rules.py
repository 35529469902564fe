"""The rules of the taxonomy, from ``rules.yaml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_args

from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_detector.diagnosis.root.taxonomy.rule import (
    Duration,
    Role,
    Rule,
    RuleBook,
)
from peerwatch_detector.diagnosis.verdict import Action, Domain, Symptom

_SHIPPED = Path(__file__).with_name("rules.yaml")

_ALLOWED: dict[str, Any] = {
    "role": Role,
    "symptom": Symptom,
    "domain": Domain,
    "duration": Duration,
    "action": Action,
}


@cache
def rule_book() -> RuleBook:
    """Return the shipped rules, read once."""
    return RuleBook(read_rules(read_yaml(_SHIPPED, is_shipped=True)))


def read_rules(about: dict[str, Any]) -> tuple[Rule, ...]:
    """Read rules from the content of a file; its head describes the entries.

    Raises
    ------
    ValueError
        If an entry has a value that is not allowed; it names the rule and what is.
    TypeError
        If an entry is missing or unknown.
    """
    return tuple(_rule(name, dict(entries)) for name, entries in about["rules"].items())


def _rule(name: str, entries: dict[str, Any]) -> Rule:
    for entry, kind in _ALLOWED.items():
        if entries.get(entry) not in get_args(kind):
            raise ValueError(
                f"rule {name}: {entry} is {entries.get(entry)!r}; there are "
                f"{', '.join(get_args(kind))}."
            )
    return Rule(name=name, **{**entries, "when": tuple(entries["when"])})
