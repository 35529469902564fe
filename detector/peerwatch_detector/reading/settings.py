"""How the readers behave and what they never exceed, with defaults that are safe everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Api = Literal["remote_read", "export", "query", "query_range"]
ApiChoice = Literal["auto", "remote_read", "export", "query", "query_range"]


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """Where the server is, how it is asked, and the limits.

    Parameters
    ----------
    url
        Base URL of the server, with a prefix if it has one.
    headers
        Extra HTTP headers, such as Authorization or X-Scope-OrgID.
    bearer_token_file
        File with a token, read for every request; None sends none.
    api
        How ranges are read: ``remote_read`` (Prometheus, Mimir), ``export`` (VictoriaMetrics),
        ``query`` (range selectors, everywhere), ``query_range`` (everywhere), or ``auto``: the
        first of these that the server answers.
    connections
        Most requests at the same time; one read takes half of them, so that a slow one leaves the
        others the rest.
    timeout_seconds
        Longest wait for one response, its body included; the server is told.
    timeout_setting
        The setting that says so, for texts of errors; empty: none does.
    deadline_seconds
        Longest time for one read with all its parts and retries.
    max_age_seconds
        A sample stands for the steps up to this long after it, and for one and a half steps at
        least; then the value is missing.
    overlap_seconds
        How far an incremental read reaches back behind the last one, for samples that came late.
    lag_seconds
        How far behind the clock a read ends.
    increment_seconds
        Ranges up to this long are read by ``query`` when the API is ``auto``: there a read costs
        by the series, and remote read gains nothing.
    max_points
        Most steps per series of one query (Prometheus refuses more than 11,000).
    max_samples
        Most samples that one query makes the server load; far below query.max-samples (50 million)
        because the server builds the whole response in memory.
    max_series
        Most series of one response; what has more is refused, so that memory stays bounded.
    max_response_bytes
        Most bytes of one response; what is longer is refused.
    max_splits
        How often a refused or truncated query is cut in half before it is given up.
    partial
        What to do with a response that the server calls partial (Thanos, Mimir, VictoriaMetrics):
        ``keep`` it with its warnings, or ``refuse`` it.
    longest_wait_seconds
        Longest time that a server is left alone after it failed again and again.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_token_file: str | None = None
    api: ApiChoice = "auto"
    connections: int = 4
    timeout_seconds: float = 10.0
    timeout_setting: str = "prometheus.timeout_seconds"
    deadline_seconds: float = 30.0
    max_age_seconds: float = 7.0
    overlap_seconds: float = 7.0
    lag_seconds: float = 2.0
    increment_seconds: float = 120.0
    max_points: int = 11_000
    max_samples: int = 15_000_000
    max_series: int = 200_000
    max_response_bytes: int = 1 << 30
    max_splits: int = 8
    partial: Literal["keep", "refuse"] = "keep"
    longest_wait_seconds: float = 60.0

    @property
    def after_timeout(self) -> str:
        """What to do where it does not suffice, as the end of a sentence."""
        raised = f"raise {self.timeout_setting} or " if self.timeout_setting else ""
        return f"{raised}check the server's load."
