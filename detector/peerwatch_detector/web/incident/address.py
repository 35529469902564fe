"""The permanent address of an incident: the job, and a time at which it stood."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

# What is shown: so long before it began, and at most so long after. Chosen: longer than the 240 s
# that a deviation lasts before it is a finding, and until collectives have timed out (10 minutes).
BEFORE_SECONDS, AFTER_SECONDS = 300.0, 900.0
_FORM = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Address:
    """Which incident.

    Parameters
    ----------
    job_id
        The training job.
    begun
        Unix time, in whole seconds, at which it began.
    """

    job_id: str
    begun: int

    @classmethod
    def of(cls, when: str, job_id: str) -> Address | None:
        """Read the parts of an address; None if the time is none."""
        try:
            moment = datetime.strptime(when, _FORM).replace(tzinfo=UTC)
        except ValueError:
            return None
        begun = int(moment.timestamp())
        return cls(job_id, begun) if begun > AFTER_SECONDS else None

    @property
    def when(self) -> str:
        """The time as the address has it, such as 20261121T184820Z."""
        return datetime.fromtimestamp(self.begun, UTC).strftime(_FORM)


def begun_of(times: Iterable[float]) -> int | None:
    """Return when what began at these times began, in whole seconds; None without times."""
    known = [time for time in times if time > AFTER_SECONDS]
    return int(min(known)) if known else None
