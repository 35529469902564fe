"""The processes of the training job on the fake node, and the heartbeats of its ranks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.simulated_node.node_plan import (
    FIRST_RANK,
    GPUS,
    JOB_ID,
    LAUNCHER_PID,
    SLOTS,
    UPTIME_SECONDS,
    WORLD_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_demo.simulated_node.files import Files
    from peerwatch_demo.simulated_node.scenario import Scenario

# The kernel's USER_HZ.
_TICKS = 100
_CGROUP = "0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n"
# A made-up job: it began so long before the exporter, each rank has as many processes that load its
# input, and they hold as much memory.
_JOB_SECONDS = 12_300.0
_LOADERS = 2
_RANK_BYTES = 24 * 2**30
_LOADER_BYTES = 3 * 2**30


class Ranks:
    """Eight ranks, each with a main process that holds a GPU and two that load its input.

    Parameters
    ----------
    files
        Where /proc and the heartbeats are written.
    scenario
        What happens on the node.
    onset
        When the scenario's change begins, in seconds after the start.
    start
        Unix time of the demonstration's start.
    """

    def __init__(self, files: Files, scenario: Scenario, onset: float, start: float) -> None:
        self._files = files
        self._scenario = scenario
        self._onset = onset
        self._start = start
        self._activity = scenario.activity(onset)
        self._is_written = False

    def update(self, seconds: float) -> None:
        """Write the files as they stand; the processes vanish when the job ends."""
        if self._scenario.phase is Phase.HALT and seconds >= self._onset:
            self._end()
            return
        for pid, parent, local_rank, is_loader in _processes():
            if not self._is_written:
                self._write_facts(pid, local_rank)
            for name, text in self._life(pid, parent, local_rank, is_loader, seconds).items():
                self._files.write(f"proc/{pid}/{name}", text)
        self._is_written = True
        for local_rank in range(GPUS):
            self._files.replace(
                f"heartbeat/rank-{FIRST_RANK + local_rank}.json",
                json.dumps(self._heartbeat(local_rank, seconds)),
            )

    def _end(self) -> None:
        if self._is_written:
            # Its last heartbeats without its processes would be ranks that died. The directory is
            # the node's, not the job's.
            self._files.clear("heartbeat")
            for pid, *_ in _processes():
                self._files.remove(f"proc/{pid}")
            self._is_written = False

    def _is_stuck(self, local_rank: int | None, seconds: float) -> bool:
        stuck = self._scenario.stuck_rank
        return stuck is not None and stuck == local_rank and seconds >= self._onset

    def _write_facts(self, pid: int, local_rank: int | None) -> None:
        variables = {
            "SLURM_JOB_ID": JOB_ID,
            "SLURM_JOB_USER": "trainer",
            "SLURM_NTASKS": str(WORLD_SIZE // GPUS),
            "SLURM_PROCID": str(FIRST_RANK // GPUS),
            "SLURM_STEP_ID": "0",
        }
        if local_rank is not None:
            variables |= {
                "RANK": str(FIRST_RANK + local_rank),
                "LOCAL_RANK": str(local_rank),
                "WORLD_SIZE": str(WORLD_SIZE),
                "LOCAL_WORLD_SIZE": str(GPUS),
            }
        environment = "".join(f"{name}={value}\0" for name, value in variables.items())
        self._files.write(f"proc/{pid}/environ", environment)
        self._files.write(f"proc/{pid}/cgroup", _CGROUP.format(job=JOB_ID))
        self._files.write(f"proc/{pid}/comm", "python\n")
        self._files.write(f"proc/{pid}/cmdline", "python\0train.py\0")

    def _life(
        self, pid: int, parent: int, local_rank: int | None, is_loader: bool, seconds: float
    ) -> Mapping[str, str]:
        stuck = self._is_stuck(local_rank, seconds) and not is_loader
        until = min(seconds, self._onset) if self._is_stuck(local_rank, seconds) else seconds
        # A launcher sleeps; a rank keeps a CPU busy; its loaders share out the input.
        share = 0.02 if local_rank is None else 1.6 if is_loader else 3.0
        ran = share * (_JOB_SECONDS / 4 + self._activity.total("cpu", until))
        state = "D" if stuck else "S" if is_loader or local_rank is None else "R"
        threads = 4 if local_rank is None else 2 if is_loader else 96
        resident = (_LOADER_BYTES if is_loader else _RANK_BYTES) // 1024
        began = int((UPTIME_SECONDS - _JOB_SECONDS) * _TICKS) + pid
        read = int(4e9 * (3000 + self._activity.total("read", until)) / GPUS) if is_loader else 0
        ticks = f"{int(ran * 85)} {int(ran * 15)}"
        return {
            "stat": (
                f"{pid} (python) {state} {parent} {pid} {pid} 0 -1 4194560 100 0 0 0 {ticks} "
                f"0 0 20 0 {threads} 0 {began} 1000000 250 18446744073709551615 0 0 0\n"
            ),
            "status": (
                f"Name:\tpython\nState:\t{state}\nPid:\t{pid}\nPPid:\t{parent}\n"
                f"VmRSS:\t{resident:8d} kB\nThreads:\t{threads}\n"
                f"voluntary_ctxt_switches:\t{int(ran * 700)}\n"
                f"nonvoluntary_ctxt_switches:\t{int(ran * 9)}\n"
            ),
            "io": f"rchar: {read}\nwchar: 1\nread_bytes: {read}\nwrite_bytes: {int(ran)}\n",
            "schedstat": f"{int(ran * 1e9)} {int(ran * 2e6)} {int(ran * 700)}\n",
        }

    def _heartbeat(self, local_rank: int, seconds: float) -> Mapping[str, object]:
        steps, ended = self._activity.steps(seconds)
        spoke = self._onset if self._is_stuck(local_rank, seconds) else seconds
        return {
            "rank": FIRST_RANK + local_rank,
            "local_rank": local_rank,
            "world_size": WORLD_SIZE,
            "job_id": JOB_ID,
            "pid": SLOTS[local_rank].pid,
            "time": round(self._start + spoke, 3),
            "step": steps,
            "batches": steps,
            "last_step_time": round(self._start + ended, 3),
        }


def _processes() -> Iterator[tuple[int, int, int | None, bool]]:
    """Yield pid, parent, local rank (None: the launcher) and whether it loads input."""
    yield LAUNCHER_PID, 1, None, False
    for slot in SLOTS:
        yield slot.pid, LAUNCHER_PID, slot.index, False
        for number in range(_LOADERS):
            yield slot.pid + 100 * (number + 1), slot.pid, slot.index, True
