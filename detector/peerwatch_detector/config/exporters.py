"""How the exporters themselves are reached: for what is too much to be a series."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from peerwatch_common.settings.section import Section


class ExportersConfig(Section):
    """How the exporters are asked for single spans; only ``timeline`` does."""

    scheme: Literal["http", "https"] = Field(
        default="http", description="Whether the exporters serve TLS."
    )
    address_label: str = Field(
        default="instance",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="The label of rank_info that holds HOST:PORT of the exporter it came from.",
    )
    username: str | None = Field(
        default=None, min_length=1, description="User of their basic authentication."
    )
    password_file: Path | None = Field(
        default=None,
        validate_default=True,
        description="File with the password of that user.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="Certificates to trust instead of the system's, in PEM format.",
    )
    timeout_seconds: float = Field(
        default=30.0, gt=0, le=600, description="Time limit for the whole answer of an exporter."
    )

    @field_validator("password_file")
    @classmethod
    def _both_or_none(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        if (file is None) != (info.data.get("username") is None):
            raise ValueError("belongs to username: give both or none")
        return file
