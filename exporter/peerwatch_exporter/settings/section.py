"""What every group of settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    # Strict: YAML's true is not the number 1, and a quoted number is a string.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
