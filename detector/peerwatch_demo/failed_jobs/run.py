"""Runs one job in a folder of its own until it has failed, and returns what it wrote."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_demo.stack.process import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_demo.failed_jobs.case import FailedJob

# A busy machine takes half a minute to import torch, and each rank does. Chosen: many times that.
_SECONDS = 400.0


class JobSucceededError(Exception):
    """The job did not fail, or did not end: there is no log of a failure."""


def run_job(case: FailedJob) -> tuple[str, str]:
    """Return what the job wrote, and the folder it ran in.

    Raises
    ------
    JobSucceededError
        If it ended well, or had to be ended.
    OSError
        If it could not be started, as where mounting is not allowed.
    """
    with tempfile.TemporaryDirectory(prefix="job-") as name, _scratch(case, Path(name)):
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "train.py").write_text(case.code)
        (folder / "job.sh").write_text(case.shell)
        environments = list(_environments(case, folder))
        log = folder / "output.log"
        with log.open("wb") as out:
            jobs = [_start(case, folder, each, out.fileno()) for each in environments]
            statuses = [_wait(case, job) for job in jobs]
        if not any(statuses):
            raise JobSucceededError(f"{case.name}: ended well, where it is made to fail")
        return log.read_text(encoding="utf-8", errors="replace"), name


def _start(
    case: FailedJob, folder: Path, environment: dict[str, str], out: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(case),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_rights(case),  # noqa: PLW1509 - no threads are started before
    )


def _wait(case: FailedJob, job: subprocess.Popen[bytes]) -> int:
    try:
        return job.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        raise JobSucceededError(f"{case.name}: still runs after {_SECONDS:.0f} s") from None
    finally:
        if job.poll() is None:
            # Its own session: whatever ranks it has are in it.
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def _command(case: FailedJob) -> list[str]:
    if case.shell:
        return ["bash", "job.sh"]
    if case.user:
        # Another user need not have the right to enter a virtual environment.
        return [shutil.which("python3", path="/usr/bin:/bin") or sys.executable, "train.py"]
    if not case.ranks:
        return [sys.executable, "train.py", *case.arguments]
    launcher = case.launcher or ("--standalone",)
    ranks = f"--nproc-per-node={case.ranks}"
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return [*torchrun, *launcher, ranks, "train.py", *case.arguments]


def _environments(case: FailedJob, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the variables of each process that is started."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    (port,) = free_ports(1)
    for rank in range(case.processes):
        own = {"HOME": str(folder), "OMP_NUM_THREADS": "1", **kept}
        if case.processes > 1:
            own |= {"RANK": str(rank), "WORLD_SIZE": str(case.processes)}
            own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        yield {name: value for name, value in (own | dict(case.environment)).items() if value}


def _rights(case: FailedJob) -> Callable[[], None]:
    """Return what is done in the process before the job's program takes its place."""
    user = pwd.getpwnam(case.user) if case.user else None
    limits = {getattr(resource, f"RLIMIT_{name}"): value for name, value in case.limits.items()}

    def give_up() -> None:
        # A shell that runs something in the background has it ignore the keyboard.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number, value in limits.items():
            resource.setrlimit(number, (value, value))
        if user is not None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

    return give_up


@contextmanager
def _scratch(case: FailedJob, folder: Path) -> Iterator[None]:
    """Mount the small filesystem that a job is given, while it runs."""
    if not case.tmpfs:
        yield
        return
    place = folder / "scratch"
    place.mkdir()
    options = f"size={case.tmpfs},{'ro' if case.readonly else 'rw'}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{case.name}: cannot mount a filesystem: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)
