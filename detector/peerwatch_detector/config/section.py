"""What every group of settings is, and how lengths of time are written."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def _plain(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


# A length of time; whole seconds are shown without a fraction.
Seconds = Annotated[float, AfterValidator(_plain)]


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
