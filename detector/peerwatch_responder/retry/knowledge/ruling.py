"""What is advised beforehand about one kind of failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from peerwatch_responder.retry.answer import Kind

Limit = Annotated[int, Field(ge=0, le=100)]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is advised about one kind of failure.

    Parameters
    ----------
    kind
        What to do.
    confidence
        How often that is right, 0 to 1.
    limit
        How often it is retried without progress before it is given up; None: always.
    decides
        Whether it needs nothing else; if not, history, diagnosis and model are asked first.
    """

    kind: Kind
    confidence: float
    limit: int | None = None
    decides: bool = True


class Entry(BaseModel):
    """A ruling as it stands in a file."""

    model_config = ConfigDict(extra="forbid")

    advice: Kind
    limit: Limit | None = None
    confidence: float = Field(default=0.6, ge=0, le=1)
    decides: bool = True

    def ruling(self) -> Ruling:
        """Return the ruling."""
        return Ruling(self.advice, self.confidence, self.limit, self.decides)
