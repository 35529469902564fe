"""Whether a node is in use, by each thing that may use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from peerwatch_checks.facts.gpu_use import GpuUse, gpu_use
from peerwatch_checks.run.busy import busy
from peerwatch_checks.settings.config import BusyConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The machine of a test is busy.
CONFIG = BusyConfig(cpu_ratio=1.0)
IDLE = (GpuUse(0, (), 0),)


@pytest.fixture(autouse=True)
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what other tests run at the same time: a real Slurm has steps too."""
    every = psutil.process_iter

    def own(attrs: list[str]) -> Iterator[psutil.Process]:
        return (process for process in every(attrs) if process.ppid() == os.getpid())

    monkeypatch.setattr("psutil.process_iter", own)


def reason(rootfs: Path, *gpus: GpuUse, config: BusyConfig = CONFIG, **environment: str) -> str:
    return busy(config, environment, rootfs, lambda: gpus or IDLE)


def test_an_idle_node(tmp_path: Path) -> None:
    assert "" == reason(tmp_path)


def test_a_process_on_a_gpu(tmp_path: Path) -> None:
    assert "GPU 1 is in use by process 7, 8." == reason(tmp_path, *IDLE, GpuUse(1, (7, 8), 0))


def test_memory_in_use_on_a_gpu(tmp_path: Path) -> None:
    assert "" == reason(tmp_path, GpuUse(0, (), 15 * 1024**2))
    assert "16 MiB of GPU 0 are in use, 15 MiB at most" in reason(
        tmp_path, GpuUse(0, (), 16 * 1024**2)
    )


def test_a_driver_that_does_not_answer_is_no_idle_one(tmp_path: Path) -> None:
    assert "It hangs." == busy(CONFIG, {}, tmp_path, lambda: "It hangs.")


# The checks of a real Slurm's nodes, in other tests, see this step.
@pytest.mark.xdist_group("slurm_steps")
@pytest.mark.parametrize("program", ["slurmstepd", "slurmstepd-wlm"])
def test_a_step_of_another_job_of_slurm(tmp_path: Path, program: str) -> None:
    name = f"{program}: [4711.batch]"
    code = "import sys, time; print('up', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [name, "-c", code], executable=sys.executable, stdout=subprocess.PIPE
    ) as step:
        try:
            assert step.stdout is not None
            step.stdout.readline()
            # Slurm writes its title over the whole command line; the rest does not matter.
            found = reason(tmp_path), reason(tmp_path, SLURM_JOB_ID="4711")
            off = reason(tmp_path, config=BusyConfig(cpu_ratio=1.0, slurm=False))
        finally:
            step.kill()

    assert ("Slurm's job 4711 runs on the node.", "", "") == (*found, off)


def checkpoint(rootfs: Path, resource: str = "nvidia.com/gpu") -> None:
    folder = rootfs / "var/lib/kubelet/device-plugins"
    folder.mkdir(parents=True)
    notes = {"Data": {"PodDeviceEntries": [{"PodUID": "p1", "ResourceName": resource}]}}
    (folder / "kubelet_internal_checkpoint").write_text(json.dumps(notes))
    (rootfs / "var/lib/kubelet/pods").mkdir()


def test_another_pod_that_has_a_gpu(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    # The kubelet forgets the devices of a pod that ended only when it gives out the next.
    assert "" == reason(tmp_path)

    (tmp_path / "var/lib/kubelet/pods/p1").mkdir()

    assert "The pod p1 has nvidia.com/gpu." == reason(tmp_path)
    assert "" == reason(tmp_path, POD_UID="p1")
    assert "" == reason(tmp_path, config=BusyConfig(cpu_ratio=1.0, kubernetes=False))


def test_a_pod_with_another_device(tmp_path: Path) -> None:
    checkpoint(tmp_path, "rdma/hca")
    (tmp_path / "var/lib/kubelet/pods/p1").mkdir()

    assert "" == reason(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"Data": 3}', '{"Data": {"PodDeviceEntries": null}}'])
def test_notes_of_another_form_say_nothing(text: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").write_text(text)

    assert "" == reason(tmp_path)


def test_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 80.0)

    assert "80% of the CPU time is in use, 50% at most (busy.cpu_ratio)." == reason(
        tmp_path, config=BusyConfig()
    )


def test_a_job_without_gpus_asks_nobody() -> None:
    assert () == gpu_use(())


def test_a_driver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import time; time.sleep(600)")
    monkeypatch.syspath_prepend(tmp_path)

    assert "did not answer within 2 s" in str(gpu_use(None, seconds=2.0))


@pytest.mark.parametrize(
    ("error", "use"),
    [
        ("LibraryNotFound", ()),
        ("DriverNotLoaded", ()),
        ("Unknown", "The GPU driver does not say who uses the GPUs."),
    ],
)
def test_only_a_node_without_a_driver_has_no_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: str, use: object
) -> None:
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "class NVMLError_LibraryNotFound(NVMLError): pass\n"
        "class NVMLError_DriverNotLoaded(NVMLError): pass\n"
        "class NVMLError_Unknown(NVMLError): pass\n"
        f"def nvmlInit(): raise NVMLError_{error}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert use == gpu_use(None, seconds=120)


def test_what_a_driver_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(
        "from types import SimpleNamespace as S\n"
        "class NVMLError(Exception): pass\n"
        "nvmlMemory_v2 = 2\n"
        "def nvmlInit(): pass\n"
        "def nvmlDeviceGetCount(): return 2\n"
        "def nvmlDeviceGetHandleByIndex(index): return index\n"
        "def nvmlDeviceGetComputeRunningProcesses(gpu): return [S(pid=7)] * gpu\n"
        "def nvmlDeviceGetMemoryInfo(gpu, version): return S(used=100 * gpu)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert (GpuUse(0, (), 0), GpuUse(1, (7,), 100)) == gpu_use(None, seconds=120)
    assert (GpuUse(1, (7,), 100),) == gpu_use((1,), seconds=120)
