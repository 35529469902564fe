"""What a person may choose by environment, and the demo's own times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_NO = ("", "0", "no", "false")


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of one run, and how long its phases take.

    Parameters
    ----------
    fault
        Name of the fault; empty for the default of this machine.
    seed
        Any text: the same text makes the same node faulty; empty for chance.
    hold
        Keep everything up after the page until Ctrl-C.
    no_namespaces
        Use plain processes even where namespaces would work.
    respond
        Have the responder take the node out, and the job go on without it.
    nodes
        Number of nodes, one rank of the training job on each.
    healthy_seconds
        Healthy training that the models learn from.
    quiet_seconds
        Healthy training under the detector's eyes before the fault.
    page_seconds
        How long to wait for the page.
    second_page_seconds
        How long to watch for a page too many.
    """

    fault: str = ""
    seed: str = ""
    hold: bool = False
    no_namespaces: bool = False
    respond: bool = False
    nodes: int = 8
    healthy_seconds: int = 45
    quiet_seconds: int = 10
    page_seconds: int = 300
    second_page_seconds: int = 15

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read FAULT, SEED, HOLD, NO_NAMESPACES and RESPOND."""
        return cls(
            fault=environment.get("FAULT", "").strip(),
            seed=environment.get("SEED", ""),
            hold=_switch(environment.get("HOLD", "")),
            no_namespaces=_switch(environment.get("NO_NAMESPACES", "")),
            respond=_switch(environment.get("RESPOND", "")),
        )


@dataclass(frozen=True, slots=True)
class Patience:
    """How the demo's detector differs from production in time, so that nobody has to wait.

    The second value of each pair is the shipped default.
    """

    continuity_seconds: float = 20.0
    absent_seconds: float = 15.0
    shipped_continuity_seconds: float = 240.0
    shipped_absent_seconds: float = 60.0

    @property
    def summary(self) -> str:
        """What the terminal says of it."""
        return (
            f"a deviation must last {self.continuity_seconds:g} s here, "
            f"{self.shipped_continuity_seconds:g} s in production; an absence "
            f"{self.absent_seconds:g} s instead of {self.shipped_absent_seconds:g} s"
        )


def _switch(text: str) -> bool:
    return text.strip().lower() not in _NO
