"""Whether processes are left over: on GPUs, as zombies, or stuck in the kernel."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.facts.gpu_use import gpu_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import psutil

    from peerwatch_checks.check import Context
    from peerwatch_checks.facts.gpu_use import GpuUse

# Whoever has these processes ends them: Slurm's steps, pods, containers.
_OWNED = re.compile(r"/job_\d+(/|$)|kubepods|/docker[-/]|libpod-|cri-containerd-|crio-")
# Chosen: what a line of text holds; the others are counted.
_MOST_NAMED = 10
# Chosen: longer than a parent takes to wait for children that ended together.
_ZOMBIE_SECONDS = 5.0


class ProcessesOptions(Options):
    """What is too many, and how long is too long."""

    zombies: int = Field(
        default=20, ge=1, description="Zombies of one parent from which on it is a warning."
    )
    stuck_seconds: float = Field(
        default=10.0,
        gt=0,
        le=25,
        description="How long a process that waits in the kernel without running at all is "
        "watched; it takes as long if there is one.",
    )
    ignore_users: tuple[str, ...] = Field(
        default=(), description="Users whose processes on GPUs belong there, such as that of DCGM."
    )


@register(
    "processes",
    "host",
    "processes left over on GPUs, zombies, and processes that are stuck in the kernel",
    failure="memory of GPUs is in use for nothing, or a file system or driver does not answer",
    condition="processes_left",
    seconds=1.0,
    timeout_seconds=90.0,
    suites=("light", "full"),
    active=False,
    options=ProcessesOptions,
)
def processes(
    context: Context,
    *,
    use: Callable[[tuple[int, ...] | None], tuple[GpuUse, ...] | str] = gpu_use,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Outcome]:
    """Yield an outcome for GPUs, for zombies and for stuck processes.

    Parameters
    ----------
    context
        Settings, the job's GPUs, where /proc is.
    use
        Returns who uses the GPUs, or a sentence why nobody knows.
    sleep
        Waits.
    """
    import psutil  # noqa: PLC0415 - a list of checks needs no processes

    options = context.options
    assert isinstance(options, ProcessesOptions)
    psutil.PROCFS_PATH = str(context.procfs)
    yield _left_on_gpus(context, options, use(context.gpus))
    yield _zombies(options, sleep)
    yield _stuck(options, sleep)


def _left_on_gpus(
    context: Context, options: ProcessesOptions, use: tuple[GpuUse, ...] | str
) -> Outcome:
    """Return what holds a GPU and is nobody's.

    After or before a job all that holds its GPUs is left over. By hand that is what no scheduler
    owns and what has lost its parent, as ranks do whose launcher was killed.
    """
    if isinstance(use, str):
        return Outcome("error", use, "gpus")
    found = []
    for gpu in use:
        for pid in gpu.processes:
            process = _process(pid)
            if process is None or _user(process) in options.ignore_users:
                continue
            if context.gpus is not None or _is_left(process, context):
                found.append(f"{_named(process)} on GPU {gpu.index}")
    if not found:
        return Outcome("pass", "No process is left over on a GPU.", "gpus")
    text = f"Left over: {_listed(found)}. End them; memory that stays in use needs a GPU reset."
    return Outcome("fail", text, "gpus", float(len(found)), "processes")


def _is_left(process: psutil.Process, context: Context) -> bool:
    import psutil  # noqa: PLC0415

    try:
        cgroup = (context.procfs / str(process.pid) / "cgroup").read_text(errors="replace")
        return process.ppid() == 1 and _OWNED.search(cgroup) is None
    except (OSError, psutil.Error):
        # It has ended, or nobody may look at it.
        return False


def _zombies(options: ProcessesOptions, sleep: Callable[[float], None]) -> Outcome:
    """Return whose children have ended and are not waited for, also a while later."""
    zombies = _dead()
    parents = Counter(zombies.values())
    if max(parents.values(), default=0) >= options.zombies:
        # Many that end at once are waited for one after the other.
        sleep(_ZOMBIE_SECONDS)
        later = _dead()
        parents = Counter(parent for key, parent in zombies.items() if key in later)
    found = [
        f"{count} of {_name_of(pid)}"
        for pid, count in parents.most_common()
        if count >= options.zombies
    ]
    total = float(parents.total())
    if not found:
        text = f"{total:.0f} zombies, fewer than {options.zombies} of each parent."
        return Outcome("pass", text, "zombies", total, "processes")
    text = f"Zombies: {_listed(found)}. Their parent does not wait for them: restart it."
    return Outcome("warn", text, "zombies", total, "processes")


def _dead() -> dict[tuple[int, float], int]:
    """Return the parents of zombies, under a key that no later process has."""
    import psutil  # noqa: PLC0415

    return {
        (process.pid, process.info["create_time"]): process.info["ppid"]
        for process in psutil.process_iter(["status", "ppid", "create_time"])
        if process.info["status"] == psutil.STATUS_ZOMBIE
    }


def _stuck(options: ProcessesOptions, sleep: Callable[[float], None]) -> Outcome:
    """Return what waits in the kernel and did not run for a moment while it was watched."""
    before = dict(_waiting())
    if before:
        sleep(options.stuck_seconds)
    after = dict(_waiting()) if before else {}
    stuck = [process for key, process in after.items() if key in before]
    if not stuck:
        return Outcome("pass", "No process is stuck in the kernel.", "stuck")
    names = _listed([_named(process) for process in stuck])
    text = (
        f"Stuck in the kernel for {options.stuck_seconds:g} s: {names}. Read /proc/PID/stack and "
        "the kernel log: a file system, a disk or a driver does not answer."
    )
    return Outcome("fail", text, "stuck", float(len(stuck)), "processes")


def _waiting() -> Iterator[tuple[tuple[int, float, int], psutil.Process]]:
    """Yield what is in an uninterruptible wait, under a key that changes once it has run."""
    import psutil  # noqa: PLC0415

    for process in psutil.process_iter():
        try:
            # Threads of the kernel wait so by design; they have no command line.
            if process.status() == psutil.STATUS_DISK_SLEEP and process.cmdline():
                switches = sum(process.num_ctx_switches())
                yield (process.pid, process.create_time(), switches), process
        except psutil.Error:
            continue


def _process(pid: int) -> psutil.Process | None:
    import psutil  # noqa: PLC0415

    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _name_of(pid: int) -> str:
    process = _process(pid)
    return f"process {pid}" if process is None else _named(process)


def _named(process: psutil.Process) -> str:
    import psutil  # noqa: PLC0415

    try:
        name = process.name()
    except psutil.Error:
        name = "process"
    return f"{name} ({process.pid}, {_user(process)})"


def _user(process: psutil.Process) -> str:
    import psutil  # noqa: PLC0415

    try:
        return str(process.username())
    except (psutil.Error, KeyError):
        return "user unknown"


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more
