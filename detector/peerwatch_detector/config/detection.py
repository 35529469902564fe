"""The settings of the detection: when a node is unlike its peers, for how long, and what follows.

Part of ``DetectorConfig``; every addition of method ``peerwatch`` is a switch of its own, so that
an evaluation can leave it out.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator


def _plain(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


# A length of time; whole seconds stay whole numbers, which count samples.
Seconds = Annotated[float, AfterValidator(_plain)]


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MethodConfig(Section):
    """The settings of one method, and what all must know of it; ``method`` names the section."""

    default_similarity_threshold: ClassVar[float] = 5.0

    @property
    def default_metrics(self) -> list[str] | None:
        """Names of the metrics it compares unless the configuration says which; None = all."""
        return None

    @property
    def leading_metrics(self) -> frozenset[str] | None:
        """Metrics that must be read first where it compares some before others; None = never."""
        return None

    @property
    def own_fill_seconds(self) -> float | None:
        """How far a sample stands for a missing one, if ``fill_limit_seconds`` does not say it."""
        return None

    @property
    def needs_models(self) -> bool:
        """Whether it embeds every metric by a trained model."""
        return False

    @property
    def needs_integrated_model(self) -> bool:
        """Whether it embeds all metrics together by one trained model."""
        return False


class SimilarityConfig(Section):
    """When a node is unlike its peers."""

    threshold: float | None = Field(
        default=None,
        gt=0,
        description="Score from which a node is a candidate. Default: 2 for method minder (normal "
        "score), 5 for method peerwatch (leave-one-out scale; used with peerwatch.embedding only).",
    )
    embedding: Literal["reconstruction", "latent"] = Field(
        default="reconstruction",
        description="What the distances are taken of: the denoised window or the latent vector.",
    )
    baseline_seconds: Seconds = Field(
        default=600,
        ge=0,
        le=7200,
        description="How much of a node's own healthy past is its normal offset from its peers; "
        "0 switches the baseline off.",
    )
    largest_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="If more than this share of the nodes (and more than one) deviates at once, "
        "the cause is common and nobody is named.",
    )


class PeerwatchConfig(MethodConfig):
    """What method peerwatch adds; each addition can be switched off alone."""

    level_seconds: Seconds = Field(
        default=15,
        gt=0,
        le=120,
        description="Trailing mean that is compared; five steps of up to a second, or more.",
    )
    scale: Literal["factor", "difference"] = Field(
        default="factor",
        description="Whether nodes are compared by factors, or by differences in the metric's unit "
        "(then min_effect_size counts instead of min_ratio).",
    )
    threshold: float = Field(
        default=4.0,
        gt=0,
        le=100,
        description="Spreads of its own past by which a node must differ from its peers.",
    )
    size_aware: bool = Field(
        default=True,
        description="Ask for more spreads among more than 64 nodes, as the largest of many "
        "harmless deviations grows with their number.",
    )
    away: bool = Field(
        default=True,
        description="While the job makes progress, a node must also have moved away from its "
        "peers' plain level, not only back to it.",
    )
    direction: bool = Field(
        default=True,
        description="Evaluate a metric on its harmful side only, where it has one.",
    )
    peer_groups: bool = Field(
        default=True,
        description="Compare nodes of one role among themselves, where roles are known "
        "(peers.role_label, peers.role_pattern); else all with all.",
    )
    per_gpu: bool = Field(
        default=True, description="Compare GPU by GPU; else the means of the nodes."
    )
    embedding: bool = Field(
        default=False,
        description="Let the peer score of the embedded windows stand for the threshold: a node "
        "over similarity.threshold needs no more. Off: it adds nothing to what the levels show.",
    )
    common_cause: bool = Field(
        default=True,
        description="Name nobody for what more than similarity.largest_share of the nodes show at "
        "once, or for what several nodes began to show together.",
    )
    collapsed_share: float = Field(
        default=0.2,
        ge=0,
        le=0.9,
        description="Below this share of its usual level a metric is not evaluated, except for "
        "high values; 0 always evaluates it.",
    )
    progress: bool = Field(
        default=True,
        description="Evaluate by the job's progress too; false asks for the whole continuity of "
        "every node, as where no metric tells of progress.",
    )
    progress_metrics: list[str] = Field(
        default=[
            "gpu_tensor_activity",
            "nvlink_bandwidth",
            "tcp_rdma_throughput",
            "gpu_power",
        ],
        description="Metrics that tell of the job's progress; the first with data is used.",
    )
    busy_metric: str = Field(
        default="gpu_duty_cycle", description="Metric that tells whether the GPUs are busy."
    )
    idle_share: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="While the busy metric is below this the job checkpoints or was halted: "
        "nothing is evaluated and deviations are frozen.",
    )
    waiting_share: float = Field(
        default=0.2,
        ge=0,
        le=0.9,
        description="Below this share of its usual progress a busy job waits for one of its ranks.",
    )
    progress_loss: float = Field(
        default=0.02,
        ge=0,
        le=0.9,
        description="Share of its progress that a job which goes on must have lost for a finding "
        "to be critical.",
    )
    first: bool = Field(
        default=True,
        description="Where all ranks wait for long and nothing can be compared any more, what a "
        "node alone began to show just before still counts.",
    )
    fast: bool = Field(
        default=True, description="Ask for less continuity while the job waits for a rank."
    )
    fast_seconds: float = Field(
        default=45.0, gt=0, le=7200, description="Continuity asked for while the job waits."
    )
    fast_pair_seconds: float = Field(
        default=25.0,
        gt=0,
        le=7200,
        description="The same where two independent metrics show the node; network metrics count "
        "as one.",
    )
    slack_seconds: float = Field(
        default=60.0,
        ge=0,
        le=600,
        description="How long before the job began to wait a deviation that explains it may have "
        "begun.",
    )
    patience_seconds: float = Field(
        default=110.0,
        ge=0,
        le=7200,
        description="After waiting this long, longer than checkpoints are late, weaker deviations "
        "count too. After the GPUs rested this long, longer than checkpoints last, the job starts "
        "anew: a wait before it works again asks for the whole continuity.",
    )
    relaxed: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="How much weaker, as a share of the minimum effect size.",
    )
    symptoms: bool = Field(
        default=True,
        description="Hold back what another node shows within ten minutes of a finding, unless "
        "both began together and are of one size.",
    )
    load: bool = Field(
        default=True,
        description="High load alone is no sign unless the job lost much progress and nothing else "
        "explains it; false lets it count as any other metric.",
    )
    load_loss: float = Field(
        default=0.1,
        ge=0,
        le=0.9,
        description="Share of its progress that the job must have lost for high load to be a sign: "
        "progress wanders by a few percent, and programs beside the job are common.",
    )

    @property
    def leading_metrics(self) -> frozenset[str]:
        """Those that tell what the job does, by which all others are compared."""
        return frozenset({*self.progress_metrics, self.busy_metric})


class MinderConfig(MethodConfig):
    """Method minder as in the paper (NSDI'25); the switches give its variants and its baseline."""

    default_similarity_threshold: ClassVar[float] = 2.0

    metrics: list[str] = Field(
        default=[
            "pfc_tx_rate",
            "cpu_usage",
            "gpu_duty_cycle",
            "gpu_power",
            "gpu_graphics_activity",
            "gpu_tensor_activity",
            "nvlink_bandwidth",
        ],
        min_length=1,
        description="What is compared, in the paper's priority, unless metrics.enabled says what; "
        "metrics.extra comes after it.",
    )
    model: Literal["vae", "raw"] = Field(
        default="vae",
        description="vae: windows pass the bundle's model of their metric, where it has one; raw: "
        "they are compared as they are (the paper's RAW).",
    )
    join: Literal["per_metric", "concatenated", "integrated"] = Field(
        default="per_metric",
        description="per_metric: metric after metric; concatenated: a node's windows of all "
        "metrics are one vector (the paper's CON); integrated: they pass one model of all metrics "
        "(INT), which needs model vae and a bundle trained with `train --integrated`, such as the "
        "shipped one.",
    )
    distance: Literal["euclidean", "manhattan", "chebyshev", "mahalanobis"] = Field(
        default="euclidean",
        description="Distance of two nodes. mahalanobis is the paper's baseline MD as understood "
        "here: between the nodes' window means of all metrics, with the covariance over the "
        "window's nodes, shrunk after Ledoit and Wolf; it needs model raw and join concatenated.",
    )
    continuity: bool = Field(
        default=True,
        description="Whether a node must stay the candidate for continuity.threshold_seconds; "
        "false names the candidate of a single window.",
    )
    fill_seconds: int = Field(
        default=600,
        ge=0,
        le=7200,
        description="How far away the nearest sample may be that stands for a missing one. The "
        "paper names no limit; what history_seconds holds is one.",
    )

    @property
    def default_metrics(self) -> list[str]:
        """The paper's, in its priority."""
        return self.metrics

    @property
    def own_fill_seconds(self) -> float:
        """The paper fills whatever is missing."""
        return self.fill_seconds

    @property
    def needs_models(self) -> bool:
        """Whether windows pass the models of their metrics."""
        return self.model == "vae" and self.join != "integrated"

    @property
    def needs_integrated_model(self) -> bool:
        """Whether windows pass the one model of all metrics."""
        return self.join == "integrated"

    @model_validator(mode="after")
    def _baseline_is_whole(self) -> Self:
        wanted = ("raw", "concatenated")
        if self.distance == "mahalanobis" and wanted != (self.model, self.join):
            raise ValueError(
                "distance mahalanobis compares the nodes' mean values of all metrics, without a "
                f"model; it needs model raw and join concatenated, got model {self.model} and "
                f"join {self.join}"
            )
        if self.join == "integrated" and self.model != "vae":
            raise ValueError(
                f"join integrated compares what one model of all metrics gives; it needs model vae,"
                f" got model {self.model}"
            )
        return self


class ContinuityConfig(Section):
    """How long a candidate must last, unless the job waits for it (``peerwatch.fast``)."""

    threshold_seconds: float = Field(
        default=240.0, gt=0, le=7200, description="Length of the deviation that makes a finding."
    )
    gap_seconds: float = Field(
        default=10.0, ge=0, le=600, description="Pause inside a deviation that does not break it."
    )
    clear_seconds: float = Field(
        default=120.0,
        gt=0,
        le=7200,
        description="A finding falls after this long without its node being a candidate.",
    )


class PeersConfig(Section):
    """Which nodes are peers, in jobs whose nodes do different things by design.

    A role needs as many nodes as the smallest job to be compared among themselves; nodes of
    smaller roles, and those of which nothing tells the role, are compared with all.
    """

    role_label: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="Label of the discovery series that holds a node's role, such as the pipeline "
        "stage or the replica type.",
    )
    role_pattern: str | None = Field(
        default=None,
        description="Regular expression searched for in a node's name; its first group is the "
        "role. Used where the label tells nothing.",
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


class ZScoreConfig(MethodConfig):
    """The outlier rule of Aegis: beyond mean + 2 standard deviations for ten minutes."""

    threshold: float = Field(default=2.0, gt=0, description="Standard deviations from the mean.")
    period_seconds: float = Field(
        default=600.0, gt=0, le=7200, description="How long the node must stay beyond it."
    )


class AbsentConfig(Section):
    """When a node that vanished becomes a finding."""

    enabled: bool = Field(default=True, description="Whether silence makes findings at all.")
    after_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="Silence after which a node counts as absent."
    )
    threshold_seconds: float = Field(
        default=60.0,
        gt=0,
        le=7200,
        description="Length of the silence that makes a finding. For a node without which the job "
        "works on it is continuity.threshold_seconds, if that is longer.",
    )
