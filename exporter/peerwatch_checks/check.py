"""The contract of a check: one file, one test of the node, one registration.

A check is a function that takes a ``Context`` and yields an ``Outcome`` for each device that it
tested. It stands in ``checks/<scope>/<name>.py`` and registers itself there, so adding one needs no
second list. It runs in a process of its own that is ended at its deadline: it may block, crash,
and start processes. Whatever it raises becomes an ``error``, which never drains a node.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

from peerwatch_common.check_results.record import SCOPES, Scope, Severity, Status
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from types import ModuleType

Suite = Literal["config", "light", "full"]
# What a node must have for a check to run; without it the check is skipped, with the reason.
Need = Literal["gpu", "torch", "numpy", "root", "perftest", "dcgm", "rdma", "peers"]

# As NHC, Slurm's usual health check, gives all of its checks by default.
_LEAST_TIMEOUT = 30.0
SUITES: tuple[Suite, ...] = get_args(Suite)
NEEDS: tuple[Need, ...] = get_args(Need)


class Options(BaseModel):
    """The settings of one check, below ``checks.<name>`` in the settings file; none by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Skip(Exception):  # noqa: N818 - it is an answer, not an error
    """The check cannot run here, for the reason in the message: the result is ``skipped``."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What a check measured on other nodes of the same hardware, as Prometheus sums it up.

    Parameters
    ----------
    count
        How many nodes.
    median, deviation
        Their median and its median absolute deviation.
    unit
        Of both.
    """

    count: int
    median: float
    deviation: float
    unit: str


@dataclass(frozen=True, slots=True)
class Context:
    """What a check is given to work with.

    Parameters
    ----------
    options
        The check's own settings, of the class that it registered.
    node
        The node's name.
    work_folder
        An empty folder of the check's own, removed with all that it left there.
    seconds
        Time until its deadline; at the deadline the process and all of its children are ended.
    attempt
        0, or 1 where the check is repeated because it failed.
    gpus
        Indices of the GPUs that may be used; None: all of the node.
    earlier
        What the check measured on this node when it last passed, by device, oldest first.
    peers
        What it measured on other nodes of the same hardware, by device; empty if nobody knows.
    usual
        The same by Prometheus, summed up; it wins over ``peers``.
    procfs, sysfs, rootfs
        Where the node's file systems are seen.
    """

    options: Options
    node: str
    work_folder: Path
    seconds: float
    attempt: int = 0
    gpus: tuple[int, ...] | None = None
    earlier: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    peers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    usual: Mapping[str, Usual] = field(default_factory=dict)
    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    rootfs: Path = Path("/")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check says of one device.

    Parameters
    ----------
    status, message
        As in the record; the message names the value, the limit and what to do.
    device
        Which part of the node; empty: all of it.
    value, unit, expected
        What was measured and what it was compared with.
    severity
        Where one check has failures of both; None: as registered.
    versions
        Versions of what took part, by name, such as ``torch``.
    """

    status: Status
    message: str
    device: str = ""
    value: float | None = None
    unit: str = ""
    expected: float | None = None
    severity: Severity | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


Run = Callable[[Context], Iterable[Outcome]]
# It keeps its own parameters beside the context, by which tests put in faults.
_RunT = TypeVar("_RunT", bound=Callable[..., Iterable[Outcome]])


@dataclass(frozen=True, slots=True)
class Check:
    """What the runner knows of a check.

    Parameters
    ----------
    name, scope
        What it is called (the name of its file), and what it tests (that of its folder).
    summary
        What it does, in a line.
    failure
        What a failure means, in a line.
    condition
        What a failure says of the node (``health_conditions``), unless an outcome says otherwise;
        empty: none of the table, as for checks of a site's own.
    severity
        ``high``: take the node out now; ``low``: when its job has ended.
    seconds
        How long it takes as a rule, on a healthy node.
    timeout_seconds
        Its deadline; it is ended and ``error`` is reported.
    suites
        The suites it is in.
    needs
        What the node must have.
    active
        Whether it puts load on the node, so that it must not run beside a job.
    run
        The check itself.
    options
        The class of its settings.
    path
        Its file.
    """

    name: str
    scope: Scope
    summary: str
    failure: str
    condition: str
    severity: Severity
    seconds: float
    timeout_seconds: float
    suites: tuple[Suite, ...]
    needs: tuple[Need, ...]
    active: bool
    run: Run
    options: type[Options]
    path: Path


_REGISTRY: dict[str, Check] = {}


def register(
    name: str,
    scope: Scope,
    summary: str,
    *,
    failure: str,
    condition: str = "",
    severity: Severity = "low",
    seconds: float,
    suites: tuple[Suite, ...],
    needs: tuple[Need, ...] = (),
    active: bool = True,
    timeout_seconds: float | None = None,
    options: type[Options] = Options,
) -> Callable[[_RunT], _RunT]:
    """Register the function below as the check ``name``; parameters as in ``Check``.

    Parameters
    ----------
    severity
        Where no ``condition`` has one.
    timeout_seconds
        None: ten times what it takes as a rule, and 30 s at least: on a node in use a process of
        the lowest priority waits for its turn.
    """

    def add(run: _RunT) -> _RunT:
        if name in _REGISTRY:
            raise ValueError(f"Check {name!r} is registered twice.")
        deadline = timeout_seconds or max(_LEAST_TIMEOUT, 10 * seconds)
        asks_for = severity_of(condition) if condition else severity
        place = Path(sys.modules[run.__module__].__file__ or "")
        _REGISTRY[name] = Check(
            *(name, scope, summary, failure, condition, asks_for, seconds, deadline),
            *(suites, needs, active, run, options, place),
        )
        return run

    return add


def checks(folders: Iterable[Path] = ()) -> dict[str, Check]:
    """Import every check and return them by name, in the order of the scopes.

    Parameters
    ----------
    folders
        Folders with checks of the site's own, one file each.

    Raises
    ------
    OSError
        If such a folder cannot be read.
    """
    for module in _own_modules():
        importlib.import_module(module)
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.suffix == ".py":
                load_file(path)
    found = sorted(_REGISTRY.values(), key=lambda each: (SCOPES.index(each.scope), each.name))
    return {each.name: each for each in found}


def _own_modules() -> Iterator[str]:
    root = importlib.import_module("peerwatch_checks.checks")
    for scope in pkgutil.iter_modules(root.__path__):
        package = importlib.import_module(f"{root.__name__}.{scope.name}")
        for module in pkgutil.iter_modules(package.__path__):
            yield f"{package.__name__}.{module.name}"


def load_file(path: Path) -> None:
    """Import a check of the site's own, once."""
    name = f"peerwatch_site_checks.{path.stem}"
    loaded: ModuleType | None = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def registered(name: str) -> Check:
    """Return a check whose module was imported.

    Raises
    ------
    KeyError
        If no imported module registered it.
    """
    return _REGISTRY[name]


def options_of(check: Check, values: Mapping[str, Any]) -> Options:
    """Return a check's settings.

    Raises
    ------
    pydantic.ValidationError
        If some have mistakes.
    """
    return check.options.model_validate(values)
