"""Reads the settings file and makes the actions it names; every mistake at once, as a sentence."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_common.logs import one_line
from peerwatch_common.settings.load import mistakes_of, validated
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_responder.action import registered_actions
from peerwatch_responder.advice import NoAdvisor
from peerwatch_responder.cluster import registered_clusters
from peerwatch_responder.settings.config import ActionConfig, ResponderConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from peerwatch_responder.action import Action
    from peerwatch_responder.advice import RetryAdvisor
    from peerwatch_responder.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Settings:
    """What a responder is made of.

    Parameters
    ----------
    config
        The settings.
    cluster
        What runs the jobs.
    actions
        All actions that rules name, by that name.
    take_out
        Names of those after which a node is out of work.
    restart
        Names of those that start a job again; the adviser is asked before.
    advisor
        Whom to ask whether a job is started again.
    """

    config: ResponderConfig
    cluster: Cluster
    actions: Mapping[str, Action]
    take_out: frozenset[str] = frozenset()
    restart: frozenset[str] = frozenset()
    advisor: RetryAdvisor = field(default_factory=NoAdvisor)


def load_settings(path: Path | None, *, dry_run: bool = False) -> Settings:
    """Return the settings of a file; None: the defaults.

    Parameters
    ----------
    path
        The file.
    dry_run
        Make it a dry run, whatever the file says.

    Raises
    ------
    ConfigError
        With every mistake found, each with its path.
    """
    config = validated(ResponderConfig, read_yaml(path) if path is not None else {})
    if dry_run:
        config = config.model_copy(update={"dry_run": True})
    known = registered_actions()
    cluster, mistakes = _cluster(config)
    actions: dict[str, Action] = {}
    take_out: set[str] = set()
    restart: set[str] = set()
    named = {
        name: f"policy.rules.{n}.do"
        for n, rule in enumerate(config.policy.rules)
        for name in rule.do
    }
    for name in {**dict.fromkeys(config.actions), **dict.fromkeys(named)}:
        given = config.actions.get(name, ActionConfig())
        place = f"actions.{name}" if name in config.actions else named[name]
        registered = known.get(given.type or name)
        if registered is None:
            mistakes.append(f"{place}: {_unknown('action', given.type or name, known)}")
            continue
        if registered.cluster not in {"", config.cluster.type}:
            mistakes.append(
                f"{place}: needs cluster.type {registered.cluster}; "
                f"it is {one_line(config.cluster.type[:100])}"
            )
            continue
        try:
            options = registered.options.model_validate(given.options)
            needed = (cluster,) if registered.cluster else ()
            actions[name] = registered.make(options, *needed)
            take_out |= {name} if registered.takes_out else set()
            restart |= {name} if registered.restarts(options) else set()
        except ValidationError as error:
            mistakes += [f"{place}.{each}" for each in mistakes_of(error, registered.options)]
    mistakes += _missing_servers(config)
    mistakes += _probation(config)
    if mistakes or cluster is None:
        raise ConfigError(mistakes)
    return Settings(config, cluster, actions, frozenset(take_out), frozenset(restart))


def _cluster(config: ResponderConfig) -> tuple[Cluster | None, list[str]]:
    """Return what runs the jobs, None if its settings have mistakes, and those."""
    known = registered_clusters()
    registered = known.get(config.cluster.type)
    if registered is None:
        return None, [f"cluster.type: {_unknown('cluster', config.cluster.type, known)}"]
    try:
        return registered.make(registered.options.model_validate(config.cluster.options)), []
    except ValidationError as error:
        return None, [f"cluster.{each}" for each in mistakes_of(error, registered.options)]


def _probation(config: ResponderConfig) -> list[str]:
    probation = config.policy.probation
    if probation is None:
        return []
    given = config.actions.get(probation.check)
    if given is not None and (given.type or probation.check) == "check":
        return []
    return [
        f"policy.probation.check: {one_line(probation.check[:100])!r} is no action of type check "
        "below actions"
    ]


def _missing_servers(config: ResponderConfig) -> list[str]:
    rules = config.policy.rules
    missing = []
    if rules and config.alertmanager is None:
        missing.append("alertmanager: is missing; it is asked whether an alert still fires")
    if any(rule.advice for rule in rules) and config.prometheus is None:
        missing.append("prometheus: is missing; a rule with advice needs its diagnoses")
    return missing


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    return one_line(f"there is no {what} {name[:100]!r}; {hint}")
