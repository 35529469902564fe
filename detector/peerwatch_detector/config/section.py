"""How lengths of time are written in settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _plain(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


# A length of time; whole seconds are shown without a fraction.
Seconds = Annotated[float, AfterValidator(_plain)]
