"""Where the series come from, and how ranges of them are read."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from peerwatch_common.settings.headers import Headers
from peerwatch_common.settings.secrets import shown
from peerwatch_common.settings.section import Section

_ADDRESS = re.compile(r"https?://\S+\Z")


class ReadingConfig(Section):
    """How ranges are read, and the limits that keep the server and the detector small."""

    api: Literal["auto", "remote_read", "export", "query", "query_range"] = Field(
        default="auto",
        description="remote_read: raw chunks (Prometheus, Mimir); export: raw lines "
        "(VictoriaMetrics); query: range selectors; query_range: one value per step (both on "
        "every server); auto: the cheapest that the server offers.",
    )
    connections: int = Field(
        default=4,
        ge=1,
        le=32,
        description="Maximum number of concurrent requests; one job uses at most half of them.",
    )
    deadline_seconds: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="Time limit for all metrics of one job, retries included.",
    )
    max_age_seconds: float = Field(
        default=7.0,
        ge=0.1,
        le=300,
        description="A sample is valid for the steps up to this long after it, and for one and "
        "a half steps at least; then the value is missing. Must exceed the interval of the "
        "recording rules, 5 s for GPUs.",
    )
    overlap_seconds: float = Field(
        default=7.0,
        ge=0,
        le=300,
        description="How much of the previous cycle's range is read again, for samples that "
        "arrived late.",
    )
    increment_seconds: float = Field(
        default=120.0,
        ge=0,
        le=7200,
        description="With API auto, ranges up to this long are read by query: at this length a "
        "read costs by the series, and the other APIs gain nothing.",
    )
    max_points: int = Field(
        default=11_000,
        ge=60,
        le=1_000_000,
        description="Maximum number of steps per series and request; Prometheus refuses more "
        "than 11000.",
    )
    max_samples: int = Field(
        default=15_000_000,
        ge=100_000,
        le=1_000_000_000,
        description="Maximum number of samples that one request makes the server load; larger "
        "ranges are read in parts. Prometheus allows 50 million and builds the response in "
        "memory.",
    )
    max_series: int = Field(
        default=200_000,
        ge=100,
        le=10_000_000,
        description="Maximum number of series in one response.",
    )
    max_response_bytes: int = Field(
        default=1 << 30, ge=1 << 20, le=1 << 40, description="Maximum size of one response."
    )
    max_splits: int = Field(
        default=8,
        ge=0,
        le=20,
        description="How often a request is halved that the server refuses for its size, "
        "answers too late or breaks off.",
    )
    partial: Literal["keep", "refuse"] = Field(
        default="keep",
        description="What to do with a response that the server calls partial, as Thanos, Mimir "
        "and VictoriaMetrics do when a store is down.",
    )
    longest_wait_seconds: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="Longest backoff from a server that failed twice in a row; backoff starts "
        "at 1 s and doubles. Also the longest time that a Retry-After of the server is honored.",
    )


class PrometheusConfig(Section):
    """Where the series come from."""

    url: str = Field(
        default="http://127.0.0.1:9090",
        description="Base URL of any server with the Prometheus query API.",
        # For the chart's schema; the validator below does not repeat the address.
        json_schema_extra={"pattern": r"^https?://[^\s]+$"},
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, le=300, description="Time limit for one response, including its body."
    )
    recorded: bool = Field(
        default=True,
        description="Read the series of rules/recording.rules.yaml; false sends the joined "
        "expressions instead, for servers without the rules.",
    )
    headers: Headers = Field(
        default_factory=dict, description="Extra HTTP headers, such as Authorization."
    )
    bearer_token_file: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="File whose content is sent as Authorization: Bearer. It is read for every "
        "request, so the token may be rotated.",
    )
    lag_seconds: float = Field(
        default=2.0,
        ge=0,
        le=60,
        description="How far behind the clock ranges end, so that late scrapes are included.",
    )
    reading: ReadingConfig = Field(default_factory=ReadingConfig)

    @property
    def shown_url(self) -> str:
        """The address without user and password, for logs and messages."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @field_validator("url")
    @classmethod
    def _can_be_asked(cls, url: str) -> str:
        if not _ADDRESS.match(url):
            said = "" if "@" in url else f", not {shown(url)}"
            raise ValueError(f"must begin with http:// or https:// and hold no space{said}")
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            # The error's own text may hold a piece of the password.
            raise ValueError(
                "is no address: after the host stands a port from 0 to 65535; in a password, "
                "write / ? # [ ] % as %2F %3F %23 %5B %5D %25"
            ) from error
        if not parts.hostname:
            raise ValueError("names no host")
        if parts.query or parts.fragment:
            raise ValueError("must end with the path; what follows ? or # would not be sent")
        return url

    @field_validator("bearer_token_file")
    @classmethod
    def _one_authorization(cls, file: str | None, info: ValidationInfo) -> str | None:
        headers = info.data.get("headers", {})
        if file is not None and any(name.lower() == "authorization" for name in headers):
            raise ValueError("headers has an Authorization as well; give one of the two")
        return file
