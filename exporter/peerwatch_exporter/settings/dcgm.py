"""Whether and where DCGM is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from peerwatch_exporter.settings.section import Section

_ADDRESS = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5})|/[^\0]{1,107}")


def _is_address(address: str) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2] or 1) not in range(1, 65536):
        raise ValueError(
            f"{address!r} is neither a host with a port, such as localhost:5555, nor the path of a "
            "socket"
        )
    return address


class DcgmConfig(Section):
    """Profiling fields of a DCGM host engine, for GPUs whose driver has no GPM."""

    enabled: bool = Field(
        default=False,
        description="Read the activity of GPUs from a running nv-hostengine (docs/exporter.md).",
    )
    address: Annotated[str, AfterValidator(_is_address)] = Field(
        default="localhost:5555",
        description="Host and port, or socket, of nv-hostengine; none is ever started.",
    )
    bindings: Path | None = Field(
        default=None,
        strict=False,
        description="Directory with DCGM's own Python bindings (pydcgm.py); unset: where its "
        "packages put them.",
    )
