"""Which logs are read, and how much of them."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from peerwatch_exporter.settings.section import Section

PLACEHOLDERS = ("job_id", "rank")


def _check_pattern(pattern: str) -> str:
    if not pattern.startswith("/"):
        raise ValueError(f"{pattern!r} is no absolute path, such as /logs/{{job_id}}/*.log")
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}
    except ValueError as error:
        raise ValueError(f"{pattern!r} has unbalanced braces; write {{{{ for one") from error
    unknown = sorted(names.difference(PLACEHOLDERS))
    if unknown:
        raise ValueError(
            f"{pattern!r} has the placeholder {{{unknown[0]}}}; there are {{job_id}} and {{rank}}"
        )
    return pattern


class LogsConfig(Section):
    """Logs of jobs and of the kernel, in which signatures of errors are counted."""

    enabled: bool = Field(
        default=False,
        description="Read the logs of the node's training jobs, and count the errors in them.",
    )
    processes: bool = Field(
        default=True,
        description="Read the files that ranks, their launchers and batch scripts have as standard "
        "output and error, and torchrun's log directories.",
    )
    pods_directory: Path | None = Field(
        default=Path("/var/log/pods"),
        strict=False,
        description="The kubelet's directory of container logs, read if it exists; null: never.",
    )
    paths: list[Annotated[str, AfterValidator(_check_pattern)]] = Field(
        default=[],
        max_length=64,
        description="Further files to read, as patterns: *, ?, [...] and ** as in a shell, "
        "{job_id} and {rank} for each job and rank of this node.",
    )
    kernel: bool = Field(default=True, description="Also look for signatures in the kernel log.")
    signatures: list[Annotated[Path, Field(strict=False)]] = Field(
        default=[],
        max_length=16,
        description="Files with signatures of your own (docs/logs.md), which come before the "
        "built-in ones.",
    )
    first_error: bool = Field(
        default=False,
        description="Publish the text of each rank's first error, redacted and cut.",
    )
    tail_bytes: int = Field(
        default=65536,
        ge=0,
        le=16_777_216,
        description="How much of the end of a file is read that is there at the start of the "
        "exporter; files that appear later are read from their beginning.",
    )
    max_bytes_per_second: int = Field(
        default=4_194_304,
        ge=65536,
        le=268_435_456,
        description="How much is read per second, all files together. A file that is more than "
        "four times this behind continues near its end; what it skipped is counted.",
    )
    max_files: int = Field(
        default=1024,
        ge=1,
        le=20000,
        description="Maximum number of files that are followed, which are kept open.",
    )
    max_series: int = Field(
        default=2000,
        ge=10,
        le=20000,
        description="Maximum number of combinations of job, rank, class and signature, and of "
        "job, rank, peer and signature; further ones count under rank, signature or peer other.",
    )
    forget_after_seconds: float = Field(
        default=3600,
        ge=60,
        le=604800,
        description="How long the series of a job stay whose ranks and logs are gone.",
    )
