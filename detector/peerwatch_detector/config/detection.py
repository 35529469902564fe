"""The settings that all methods share: who is compared with whom, and for how long."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from peerwatch_common.settings.section import Section
from peerwatch_detector.config.section import Seconds


class SimilarityConfig(Section):
    """When a node is unlike its peers."""

    threshold: float | None = Field(
        default=None,
        gt=0,
        description="Score above which a node is a candidate. Default: 2 for method minder "
        "(normal score), 5 for method peerwatch (leave-one-out scale; used with "
        "peerwatch.embedding only).",
    )
    embedding: Literal["reconstruction", "latent"] = Field(
        default="reconstruction",
        description="What distances are computed from: the denoised window or the latent vector.",
    )
    baseline_seconds: Seconds = Field(
        default=600,
        ge=0,
        le=7200,
        description="How much of a node's own healthy past determines its baseline, the usual "
        "offset from its peers; 0 disables the baseline.",
    )
    largest_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="If more than this share of the nodes (and more than one) deviate at once, "
        "the cause is common and nobody is flagged.",
    )


class ContinuityConfig(Section):
    """How long a candidate must last, unless the job waits for it (``peerwatch.fast``)."""

    threshold_seconds: float = Field(
        default=240.0,
        gt=0,
        le=7200,
        description="How long a deviation must last to become a finding.",
    )
    gap_seconds: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="Length of a gap that does not interrupt a deviation.",
    )
    clear_seconds: float = Field(
        default=120.0,
        gt=0,
        le=7200,
        description="A finding resolves after its node has not been a candidate for this long.",
    )


class PeersConfig(Section):
    """Which nodes are peers, in jobs whose nodes do different things by design.

    A role needs as many nodes as the smallest job to be compared among themselves; nodes of
    smaller roles, and those of which nothing tells the role, are compared with all.
    """

    role_label: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="Label of the discovery series with a node's role, such as the pipeline "
        "stage or the replica type.",
    )
    role_pattern: str | None = Field(
        default=None,
        description="Regular expression searched for in a node's name; its first group is the "
        "role. Used if the label is missing or empty.",
    )

    @field_validator("role_pattern")
    @classmethod
    def _pattern_has_a_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        if groups != 1:
            raise ValueError(
                f"{pattern!r} has {groups} groups; the one group of it is the role, as in "
                "'^(actor|learner)-'"
            )
        return pattern

    def role(self, node: str, label: str = "") -> str:
        """Return a node's role by its label or else its name; empty = not known."""
        if label or self.role_pattern is None:
            return label
        found = re.search(self.role_pattern, node)
        return (found.group(1) or "") if found else ""


class AbsentConfig(Section):
    """When a node that vanished becomes a finding."""

    enabled: bool = Field(default=True, description="Whether absent nodes become findings.")
    after_seconds: float = Field(
        default=15.0,
        gt=0,
        le=3600,
        description="How long a node must be unreachable to count as absent.",
    )
    threshold_seconds: float = Field(
        default=60.0,
        gt=0,
        le=7200,
        description="How long a node must be unreachable to become a finding. For a node "
        "without which the job keeps working, or that was still there when the job had waited for "
        "half of peerwatch.slack_seconds, it is continuity.threshold_seconds, if that is longer.",
    )
