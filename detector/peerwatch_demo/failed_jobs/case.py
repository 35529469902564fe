"""One job that fails: its program, how it is started, and what it fails of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

CASES = Path(__file__).with_name("cases.yaml")


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job, as ``cases.yaml`` describes it.

    Attributes
    ----------
    name
        Unique.
    mechanism
        What it fails of; the corpus has its label.
    source
        Who words the message: a framework, the shell, a launcher.
    code
        The program, ``train.py``; empty: there is a script instead.
    shell
        The script, ``job.sh``; empty: there is a program.
    ranks
        torchrun starts so many; 0: it does not.
    processes
        So many are started, as ranks without torchrun.
    arguments, launcher
        Of the program; further ones of torchrun.
    environment
        Further variables; one with an empty value is removed.
    limits
        Resource limits in the units of ``setrlimit``, by name.
    user
        Whose rights it has; empty: those of the caller.
    tmpfs
        Bytes of a filesystem at ``scratch``; 0: none.
    readonly
        Whether that is for reading only.
    """

    name: str
    mechanism: str
    source: str
    code: str = ""
    shell: str = ""
    ranks: int = 0
    processes: int = 1
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    user: str = ""
    tmpfs: int = 0
    readonly: bool = False

    @property
    def needs_root(self) -> bool:
        """Whether only root can make it fail: it mounts, or gives rights up."""
        return bool(self.user or self.tmpfs)


def load_cases(path: Path = CASES) -> list[FailedJob]:
    """Return the jobs of a file, in its order."""
    held: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_case(name, about) for name, about in held.items()]


def _case(name: str, about: dict[str, Any]) -> FailedJob:
    lists = {key: tuple(about.get(key, ())) for key in ("arguments", "launcher")}
    return FailedJob(name, **{**about, **lists})
