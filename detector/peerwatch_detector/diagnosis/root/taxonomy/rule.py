"""A rule of the taxonomy: what an observation is a sign of, and how its rule is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.verdict import Action, Domain, Symptom

Role = Literal[
    # Names the node by itself: an entry of Aegis' CriticalError.
    "critical",
    # Names the node if nothing else explains the failure: it also passes without harm.
    "weak",
    # An entry of DistError that waits for somebody, or that lost a connection.
    "waiting",
    "broken",
    # Says who, not why: verdicts about collectives, findings, silence.
    "suspect",
    # The training program; the storage that the job shares; the scheduler.
    "user",
    "storage",
    "platform",
    # Supports another sign; noise supports nothing.
    "hint",
    "noise",
]
Duration = Literal["transient", "permanent"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What one kind of observation is a sign of.

    Parameters
    ----------
    name
        Unique.
    role
        Its part in Aegis' Algorithm 1.
    symptom, domain, duration, action
        The row of the taxonomy: what fails, whose it is, whether it passes with a restart or
        reset, and what to do if it is the root.
    says
        What happened, to follow the subject: "GPU 3 ...", "the node ...".
    when
        Which observations fall under it: ``kind:name name ...``; ``kind/class:*`` takes all of a
        class that no rule names, ``kind:*`` all others of a kind.
    source
        Where it is known from.
    ambiguous
        Whether a mistake of the program shows the same, or a fault of hardware the same as a
        mistake: then it counts for the program only where no hardware explains it.
    """

    name: str
    role: Role
    symptom: Symptom
    domain: Domain
    duration: Duration
    action: Action
    says: str
    when: tuple[str, ...]
    source: str
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation and the rule that it falls under."""

    evidence: Evidence
    rule: Rule

    @property
    def time(self) -> float:
        """When it was made, in the evidence's seconds."""
        return self.evidence.time


class RuleBook:
    """Finds the rule of an observation.

    Parameters
    ----------
    rules
        Each observation falls under one of them at most.

    Raises
    ------
    ValueError
        If two rules claim the same.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_key: dict[str, Rule] = {}
        for rule in rules:
            for key in _keys(rule.when):
                if (other := self._by_key.setdefault(key, rule)) is not rule:
                    raise ValueError(f"{key} is claimed by {other.name} and {rule.name}.")

    @property
    def by_key(self) -> Mapping[str, Rule]:
        """Return the rules by what they claim."""
        return self._by_key

    def rule_of(self, evidence: Evidence) -> Rule | None:
        """Return the rule that an observation falls under: by name, then class, then kind."""
        kind = evidence.kind
        keys = (f"{kind}:{evidence.name}", f"{kind}/{evidence.class_name}:*", f"{kind}:*")
        return next((self._by_key[key] for key in keys if key in self._by_key), None)


def _keys(when: Iterable[str]) -> list[str]:
    keys = []
    for each in when:
        kinds, _, names = each.partition(":")
        keys += [f"{kind}:{name}" for kind in kinds.split("|") for name in names.split()]
    return keys
