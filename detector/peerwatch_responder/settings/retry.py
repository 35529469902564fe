"""Whether a failed job is started again: what is asked, and where it is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, FilePath

from peerwatch_common.settings.section import Section


class RetryConfig(Section):
    """Section ``retry``."""

    enabled: bool = Field(
        default=False,
        description="Whether the logs of a job are read before an action starts it again; "
        "``advise`` reads them in any case.",
    )
    logs: tuple[str, ...] = Field(
        default=(),
        max_length=20,
        description="Where jobs write, as paths with wildcards and ``{job_id}``; beside what Slurm "
        "or Kubernetes says, where ``cluster.type`` is one of them.",
    )
    history: Path = Field(
        default=Path("/var/lib/peerwatch/responder/retry.jsonl"),
        description="What was advised and corrected, in a folder that exists.",
    )
    max_retries: int = Field(
        default=2,
        ge=0,
        le=100,
        description="How often a job is started again without progress where nothing is known of "
        "its failure.",
    )
    backoff_seconds: float = Field(
        default=300.0,
        ge=0,
        le=3600,
        description="How long a first retry with back-off waits; each further one twice as long, "
        "an hour at most.",
    )
    model: Literal["tfidf", "sibylla", "none"] = Field(
        default="tfidf",
        description="Which learnt model is asked about what nothing else knows "
        "(docs/retry-model.md): logistic regression, Sibylla's recurrent networks, or none.",
    )
    model_file: FilePath | None = Field(
        default=None,
        description="Models that ``peerwatch-responder learn`` wrote; unset: those that ship.",
    )
    signatures: tuple[FilePath, ...] = Field(
        default=(), description="Files with signatures of your own (docs/logs.md)."
    )
    advice: tuple[FilePath, ...] = Field(
        default=(), description="Files with what signatures advise (docs/retry.md)."
    )
