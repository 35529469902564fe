"""The settings of each method of detection, and what the others must know of it.

Every addition of method ``peerwatch`` is a switch of its own, so that an evaluation can leave it
out.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from peerwatch_common.settings.section import Section
from peerwatch_detector.config.section import Seconds

# Method peerwatch evaluates every so many samples, of a second at most: a deviation is seen within
# five seconds of samples, at a fifth of the cost.
EVALUATED_EVERY = 5


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
    def counters(self) -> frozenset[str]:
        """Names of the job's own counters that it reads beside the metrics, if there are any."""
        return frozenset()

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


class PeerwatchConfig(MethodConfig):
    """What method peerwatch adds; each addition can be switched off alone."""

    level_seconds: Seconds = Field(
        default=15,
        gt=0,
        le=120,
        description="Length of the trailing mean that is compared; at least five steps of up to "
        "a second.",
    )
    scale: Literal["factor", "difference"] = Field(
        default="factor",
        description="Compare nodes by factors, or by differences in the metric's unit (then "
        "min_effect_size applies instead of min_ratio).",
    )
    threshold: float = Field(
        default=4.0,
        gt=0,
        le=100,
        description="How many spreads of its own past a node must differ from its peers.",
    )
    size_aware: bool = Field(
        default=True,
        description="Require more spreads among more than 64 nodes, because the largest of many "
        "harmless deviations grows with their number.",
    )
    away: bool = Field(
        default=True,
        description="While the job makes progress, a node must also have moved away from its "
        "peers' plain level, not just back to it; while it waits, it must at least be on that side "
        "of them.",
    )
    direction: bool = Field(
        default=True,
        description="Evaluate a metric only in its harmful direction, if it has one.",
    )
    peer_groups: bool = Field(
        default=True,
        description="Compare nodes of one role with one another where roles are known "
        "(peers.role_label, peers.role_pattern); otherwise all with all.",
    )
    per_gpu: bool = Field(
        default=True, description="Compare GPU by GPU; otherwise the nodes' means."
    )
    embedding: bool = Field(
        default=False,
        description="Use the peer score of the embedded windows instead of the threshold: a "
        "node above similarity.threshold needs no more. Off: it adds nothing to what the levels "
        "show.",
    )
    common_cause: bool = Field(
        default=True,
        description="Flag nobody for what more than similarity.largest_share of the nodes show "
        "at once, or for what several nodes began to show together or show nearly as much of; and "
        "nobody for congestion that the others feel, too, unless it exceeds theirs by as much as "
        "theirs exceeds the usual, or that another role feels half as much.",
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
        description="Take the job's progress into account; false requires the full continuity "
        "of every node, as when no metric reveals progress.",
    )
    progress_metrics: list[str] = Field(
        default=[
            "rank_steps",
            "collectives",
            "gpu_tensor_activity",
            "nvlink_bandwidth",
            "tcp_rdma_throughput",
            "gpu_power",
        ],
        description="What reveals the job's progress: the counters of its own work first "
        "(rank_steps, collectives), then metrics of its hardware; of each kind the first one with "
        "data is used. A job whose work is counted waits for a rank only if all counters stand and "
        "the hardware, where it is known, does next to nothing as well.",
    )
    busy_metric: str = Field(
        default="gpu_duty_cycle", description="Metric that reveals whether the GPUs are busy."
    )
    held_metric: str = Field(
        default="gpu_memory_used",
        description="Metric that reveals whether the job's processes are there: a checkpoint rests "
        "the GPUs, only processes that end give back their memory.",
    )
    idle_share: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="While the busy metric is below this, the job is checkpointing or halted: "
        "nothing is evaluated and deviations are frozen.",
    )
    waiting_share: float = Field(
        default=0.2,
        ge=0,
        le=0.9,
        description="Below this share of its usual progress a busy job is waiting for one of "
        "its ranks.",
    )
    progress_loss: float = Field(
        default=0.02,
        ge=0,
        le=0.9,
        description="Share of its progress that a training job must have lost for a finding to "
        "be critical.",
    )
    first: bool = Field(
        default=True,
        description="When all ranks have waited for long and nothing can be compared any more, "
        "what a single node began to show just before still counts.",
    )
    fast: bool = Field(
        default=True, description="Require less continuity while the job waits for a rank."
    )
    fast_seconds: float = Field(
        default=45.0, gt=0, le=7200, description="Continuity required while the job waits."
    )
    fast_pair_seconds: float = Field(
        default=25.0,
        gt=0,
        le=7200,
        description="The same if two independent metrics show the node; all network metrics "
        "count as one.",
    )
    company: bool = Field(
        default=True,
        description="While the job waits, flag a node early only if metrics with two different "
        "causes (GPUs, network, CPU, ...) speak against it, each for fast_pair_seconds, or its "
        "rank's heartbeat does. Signs of one cause, and all after a rest of the GPUs, must wait "
        "for patience_seconds, weak ones for fast_seconds more. What a working job bore within the "
        "ten minutes before is no sign unless it has grown by half, and what begins once the wait "
        "is long is one only in its whole size and with the full continuity.",
    )
    ended: bool = Field(
        default=True,
        description="When the job's processes end right out of a wait, a node that has differed "
        "until then needs no more time: fast_seconds of both, or fast_pair_seconds if it differs "
        "much or in metrics with two different causes.",
    )
    slack_seconds: float = Field(
        default=60.0,
        ge=0,
        le=600,
        description="How long before the wait a deviation that explains it may have begun.",
    )
    patience_seconds: float = Field(
        default=110.0,
        ge=0,
        le=7200,
        description="After waiting this long, longer than checkpoints are late, weaker "
        "deviations count too. After the GPUs have been idle this long, longer than checkpoints "
        "take, the job counts as restarting: a wait before it has trained again requires the "
        "full continuity.",
    )
    relaxed: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="How much weaker, as a share of the minimum effect size.",
    )
    restarts: bool = Field(
        default=True,
        description="Once the job's processes have ended, a finding needs the full continuity "
        "until the job works again, and what nodes usually do and hold (CPU, traffic, memory) is "
        "learned anew from then on.",
    )
    symptoms: bool = Field(
        default=True,
        description="Hold back what other nodes show within ten minutes of a finding, unless "
        "both began together and are of similar size.",
    )
    load: bool = Field(
        default=True,
        description="High load alone does not count unless the job lost much progress and "
        "nothing else explains it; false treats it like any other metric.",
    )
    load_loss: float = Field(
        default=0.1,
        ge=0,
        le=0.9,
        description="Share of its progress that the job must have lost for high load to count: "
        "progress wanders by a few percent, and other programs beside the job are common.",
    )
    other_work: bool = Field(
        default=True,
        description="Seconds in which the job computes, but with less than half of the traffic "
        "that goes with it in training, are an evaluation and tell nothing of lost progress, "
        "unless they last for ten minutes.",
    )
    returns: bool = Field(
        default=True,
        description="A node whose processes do and hold again what was usual for it within the "
        "last hour is no candidate: what ran beside the job has ended.",
    )
    again: bool = Field(
        default=True,
        description="Where a node shows again what it showed within the ten minutes before, the "
        "job must have lost progress since it first did so, too, unless it has grown by half: what "
        "comes and goes at the same pace of the job does not slow it down.",
    )
    weak: bool = Field(
        default=True,
        description="While the job works, what exceeds the minimum effect size by less than half "
        "must last twice as long, unless a metric with another cause shows the same node.",
    )
    late_samples: bool = Field(
        default=True,
        description="A node that is not seen to come back from a pause with the others is not the "
        "first to stop in the next one: no job works without it, so its samples are late.",
    )
    steady_loss: bool = Field(
        default=True,
        description="Progress must have been lost in two thirds of the time since a deviation "
        "began, for high load in all three, and stalls that fall close together are left out: an "
        "evaluation or a slow storage in between is not the node's doing.",
    )

    @property
    def leading_metrics(self) -> frozenset[str]:
        """Those that tell what the job does, by which all others are compared."""
        return frozenset({*self.progress_metrics, self.busy_metric, self.held_metric})

    @property
    def counters(self) -> frozenset[str]:
        """Those that reveal the job's progress."""
        return frozenset(self.progress_metrics if self.progress else ())


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
        description="Which metrics are compared, in the paper's priority, unless "
        "metrics.enabled is set; metrics.extra follows.",
    )
    model: Literal["vae", "raw"] = Field(
        default="vae",
        description="vae: windows pass through the bundle's model of their metric, if it has "
        "one; raw: they are compared as they are (the paper's RAW).",
    )
    join: Literal["per_metric", "concatenated", "integrated"] = Field(
        default="per_metric",
        description="per_metric: one metric after another; concatenated: a node's windows of "
        "all metrics form one vector (the paper's CON); integrated: they pass through one model "
        "of all metrics (INT), which needs model vae and a bundle trained with `train "
        "--integrated`, such as the shipped one.",
    )
    distance: Literal["euclidean", "manhattan", "chebyshev", "mahalanobis"] = Field(
        default="euclidean",
        description="Distance between two nodes. mahalanobis is the paper's baseline MD as "
        "understood here: between the nodes' window means of all metrics, with the covariance "
        "over the window's nodes, shrunk after Ledoit and Wolf; it needs model raw and join "
        "concatenated.",
    )
    continuity: bool = Field(
        default=True,
        description="Whether a node must remain the candidate for continuity.threshold_seconds; "
        "false flags the candidate of a single window.",
    )
    fill_seconds: int = Field(
        default=600,
        ge=0,
        le=7200,
        description="How far away the nearest sample may be that fills a missing one. The paper "
        "gives no limit; history_seconds is one.",
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


class ZScoreConfig(MethodConfig):
    """The outlier rule of Aegis: beyond mean + 2 standard deviations for ten minutes."""

    threshold: float = Field(default=2.0, gt=0, description="Standard deviations from the mean.")
    period_seconds: float = Field(
        default=600.0, gt=0, le=7200, description="How long the node must stay beyond that."
    )
