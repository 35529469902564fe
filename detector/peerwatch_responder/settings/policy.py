"""Which alert is answered with what, and how much may be done at once.

The limits are those that responders of others lacked when they took a cluster down; their defaults
are proposals on the careful side, none of them measured.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from peerwatch_common.check_results.record import Severity
from peerwatch_common.settings.section import Section

# What the root diagnosis advises, of which a rule may ask for some.
Advice = Literal["isolate", "replace", "drain", "restart", "ask", "inspect", "none"]

# Seconds.
_DAY = 86_400.0


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


Expression = Annotated[str, AfterValidator(_expression)]


class RuleConfig(Section):
    """One kind of alert, and the answer to it; the first rule that matches counts."""

    name: str = Field(min_length=1, max_length=64, description="What it is called in reasons.")
    match: dict[str, Expression] = Field(
        min_length=1,
        description="Regular expressions, by label, which must match the whole of its value.",
    )
    condition: Severity | None = Field(
        default=None,
        description="What the alert must say of the node: high, which breaks jobs, or low, which "
        "can wait until its job has ended (docs/health-conditions.md); null: either, or nothing.",
    )
    advice: tuple[Advice, ...] = Field(
        default=(),
        description="What the root diagnosis must advise for the node, one of these; empty: it is "
        "not asked.",
    )
    do: tuple[str, ...] = Field(
        min_length=1, max_length=10, description="Names of actions, in their order."
    )


class BudgetConfig(Section):
    """How much may be done; all limits hold at once."""

    nodes_per_job: int = Field(
        default=1, ge=1, description="Nodes of one training job taken out within an hour."
    )
    nodes_per_hour: int = Field(default=3, ge=1, description="Nodes taken out within an hour.")
    concurrent_ratio: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="Share of the cluster's nodes that may be out at once.",
    )
    concurrent_max: int = Field(
        default=10, ge=1, description="Nodes that may be out at once, however large the cluster."
    )


class BreakerConfig(Section):
    """So many nodes are wanted that something else is wrong: all stops, a person looks."""

    nodes: int = Field(default=5, ge=2, description="Different nodes wanted that trip it.")
    seconds: float = Field(default=600.0, gt=0, le=_DAY, description="The time they fall into.")


class ProbationConfig(Section):
    """When a node that was taken out may go back to work."""

    check: str = Field(
        min_length=1,
        description="Name of the action, of type check, that a node must pass before `undo` puts "
        "it back.",
    )
    automatic: bool = Field(
        default=False,
        description="Whether a node goes back by itself when it has passed often enough; otherwise "
        "a person says `undo`.",
    )
    after_seconds: float = Field(
        default=3600.0, ge=0, le=30 * _DAY, description="How long it stays out before it is tried."
    )
    interval_seconds: float = Field(
        default=3600.0, ge=60, le=30 * _DAY, description="Time between two tries."
    )
    passes: int = Field(
        default=3, ge=1, le=100, description="Tries that it must pass, one after the other."
    )


class PolicyConfig(Section):
    """Section ``policy``."""

    rules: tuple[RuleConfig, ...] = Field(
        default=(), description="What is answered, and with what; empty: nothing is."
    )
    protected_nodes: tuple[Expression, ...] = Field(
        default=(),
        description="Regular expressions for names of nodes that are never touched; the control "
        "plane and the responder's own node never are.",
    )
    settle_seconds: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="How long an alert waits for others of its job: several nodes named at once "
        "are a fault of the job or the network.",
    )
    suspects_per_job: int = Field(
        default=1,
        ge=1,
        le=2,
        description="Nodes of one job that may be named at once; with more, none is taken out.",
    )
    max_age_seconds: float = Field(
        default=1800.0,
        gt=0,
        le=_DAY,
        description="An alert that began longer ago is not answered any more.",
    )
    cool_down_seconds: float = Field(
        default=_DAY,
        ge=0,
        le=30 * _DAY,
        description="How long a node is left alone after a person has put it back.",
    )
    repeat_seconds: float = Field(
        default=3600.0,
        ge=0,
        le=30 * _DAY,
        description="How long after an answer for a node no other is given for it.",
    )
    attempts: int = Field(
        default=2, ge=1, description="Answers for one node, after which a person is needed."
    )
    attempts_seconds: float = Field(
        default=7 * _DAY, gt=0, le=90 * _DAY, description="The time in which they are counted."
    )
    probation: ProbationConfig | None = Field(
        default=None,
        description="What a node must pass before it is put back; without it a person decides.",
    )
    budget: BudgetConfig = BudgetConfig()
    breaker: BreakerConfig = BreakerConfig()
