"""The hook inside training jobs: real Python processes, one of them a real torch job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from hardware_cases import collected
from peerwatch_exporter.__main__ import main
from peerwatch_exporter.collectors.ranks import RanksCollector
from peerwatch_exporter.settings.config import ExporterConfig, HeartbeatConfig
from peerwatch_exporter.sources import real_sources
from peerwatch_exporter.sources.jobs.heartbeat import read_heartbeats

TRAINING = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
model = DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for line in sys.stdin:
    for rows in DataLoader(torch.ones(int(line), 2), batch_size=1):
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture
def hook(capsys):
    assert 0 == main(["hook-path"])
    return capsys.readouterr().out.strip()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "heartbeats"


@pytest.fixture
def start(hook, folder):
    """Return a function that starts Python with the hook; what still runs ends with the test."""
    processes = []

    def run(*arguments, path=(), **variables):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((hook, *map(str, path))),
            "PEERWATCH_HEARTBEAT_DIR": str(folder),
            "PEERWATCH_JOB_ID": "job",
            **variables,
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        with process:  # closes its streams and waits
            process.kill()


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def heartbeat_of(folder, rank):
    try:
        return json.loads((folder / f"rank-{rank}.json").read_text())
    except FileNotFoundError:
        return {}


def test_torch_job_is_followed_without_a_change_to_it(start, folder, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    ranks = [
        start(str(script), str(tmp_path / "rendezvous"), RANK=str(rank), WORLD_SIZE="2")
        for rank in range(2)
    ]

    def steps(count):
        for process in ranks:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()

    # Once the hook counts, not a step is missed.
    assert wait_for(lambda: all("step" in heartbeat_of(folder, rank) for rank in range(2)), 120)
    before = heartbeat_of(folder, 0)["step"]
    assert wait_for(lambda: all("batches" in heartbeat_of(folder, rank) for rank in range(2)), 120)
    steps(5)
    assert wait_for(lambda: [before + 5] * 2 == [heartbeat_of(folder, r)["step"] for r in range(2)])
    last = heartbeat_of(folder, 1)
    assert (1, 2, "job", ranks[1].pid, "distributed") == (
        last["rank"],
        last["world_size"],
        last["job_id"],
        last["pid"],
        last["source"],
    )
    assert 0 <= last["time"] - last["last_step_time"] < 60

    config = ExporterConfig(heartbeat=HeartbeatConfig(directory=folder))
    samples = collected(RanksCollector(config, real_sources(config)))
    assert before + 5 == samples["rank_steps_total", "job", "1"]
    assert 5 == samples["rank_batches_total", "job", "1"]

    # A rank that stands still falls silent; the other one goes on.
    ranks[1].send_signal(signal.SIGSTOP)
    frozen = heartbeat_of(folder, 1)["time"]
    assert wait_for(lambda: heartbeat_of(folder, 0)["time"] > frozen + 1.2)
    samples = collected(RanksCollector(config, real_sources(config)))
    assert 1 == samples["rank_process_state", "job", "1", "stopped"]
    ranks[1].send_signal(signal.SIGCONT)

    for process in ranks:
        process.stdin.close()
    assert [0, 0] == [process.wait(60) for process in ranks]
    # A job that ended as it should leaves nothing behind.
    assert [] == list(folder.iterdir())


def test_rank_writes_heartbeats_by_its_environment_where_there_is_no_torch(start, folder):
    process = start("-c", "input()", RANK="3", WORLD_SIZE="4", LOCAL_RANK="1")
    assert wait_for(lambda: heartbeat_of(folder, 3))
    (heartbeat,) = read_heartbeats(folder).ranks
    assert (3, 4, 1, "job", process.pid, None) == (
        heartbeat.rank,
        heartbeat.world_size,
        heartbeat.local_rank,
        heartbeat.job_id,
        heartbeat.pid,
        heartbeat.step,
    )


def test_crashed_and_killed_ranks_leave_their_heartbeat(start, folder):
    crashed = start("-c", "input(); raise RuntimeError", RANK="0", WORLD_SIZE="2")
    killed = start("-c", "input()", RANK="1", WORLD_SIZE="2")
    assert wait_for(lambda: heartbeat_of(folder, 0) and heartbeat_of(folder, 1))
    crashed.communicate("\n")
    killed.kill()
    killed.wait()
    ends = {each.rank: (each.ended is None, each.error) for each in read_heartbeats(folder).ranks}
    assert {0: (False, "RuntimeError"), 1: (True, "")} == ends


def test_program_that_ended_with_an_exception_says_so_while_a_thread_keeps_its_process(
    start, folder
):
    code = (
        "import threading, time; threading.Thread(target=lambda: time.sleep(8)).start()\n"
        "raise ValueError"
    )
    process = start("-c", code, RANK="0", WORLD_SIZE="2")
    assert wait_for(lambda: heartbeat_of(folder, 0).get("error"))
    first = heartbeat_of(folder, 0)
    assert ("ValueError", None) == (first["error"], process.poll())
    # It stays when it was that it ended, also when the process does.
    assert 1 == process.wait(60)
    assert first["ended"] == heartbeat_of(folder, 0)["ended"]


def test_helper_of_a_rank_writes_no_heartbeat_for_it(start, folder):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    process = start("-c", code, RANK="0", WORLD_SIZE="1")
    assert wait_for(lambda: heartbeat_of(folder, 0))
    process.kill()
    process.wait()
    last = heartbeat_of(folder, 0)
    time.sleep(1.5)  # longer than the period: the orphaned helper would have written by now
    assert last == heartbeat_of(folder, 0)


@pytest.mark.parametrize(("age", "writer"), [(-60, "the rank"), (3600, "this process")])
def test_launcher_yields_to_the_rank_it_launched_but_not_to_a_dead_one(start, folder, age, writer):
    folder.mkdir()
    document = {"rank": 0, "time": time.time() - age, "pid": 1, "source": "distributed"}
    (folder / "rank-0.json").write_text(json.dumps(document))
    process = start("-c", "print('up', flush=True); input()", RANK="0", WORLD_SIZE="1")
    assert "up\n" == process.stdout.readline()
    mine = writer == "this process"
    # It writes one every second: what it has not written soon it will not write.
    assert mine == wait_for(
        lambda: heartbeat_of(folder, 0)["pid"] == process.pid, 60 if mine else 2.5
    )


def test_program_that_is_no_rank_writes_nothing(start, folder):
    process = start("-c", "import time; time.sleep(0.5); print('done')")
    assert ("done\n", "") == process.communicate(timeout=300)
    assert not folder.exists()


@pytest.mark.parametrize("directory", ["/proc/no/such", ""])
def test_directory_that_cannot_be_written_does_not_disturb_the_program(start, directory):
    process = start(
        "-c", "print('done')", RANK="0", WORLD_SIZE="1", PEERWATCH_HEARTBEAT_DIR=directory
    )
    assert ("done\n", "") == process.communicate(timeout=300)
    assert 0 == process.returncode


def test_sitecustomize_of_the_user_still_runs(start, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.from_user = 'here'")
    code = "import sitecustomize; print(from_user, sitecustomize.__file__)"
    process = start("-c", code, path=[tmp_path])
    assert f"here {tmp_path / 'sitecustomize.py'}\n" == process.communicate(timeout=300)[0]


def test_hook_needs_the_standard_library_only(start):
    code = (
        "import sys\n"
        "third = {m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names\n"
        "own = {'__main__', 'sitecustomize', 'peerwatch_heartbeat', 'peerwatch_recorder'}\n"
        "print(*sorted(third - own))"
    )
    process = start("-S", "-c", "import sitecustomize\n" + code)
    assert ("\n", "") == process.communicate(timeout=300)
