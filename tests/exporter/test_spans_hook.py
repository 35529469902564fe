"""Spans of real PyTorch programs that know nothing of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peerwatch_exporter.__main__ import main
from peerwatch_exporter.sources.spans.files import read_span_files
from peerwatch_exporter.sources.spans.ring import read_spans

HEAD = """
import io, os, sys, time, torch
import torch.distributed as dist
import peerwatch_spans
torch.set_num_threads(1)
heartbeats = os.environ["PEERWATCH_HEARTBEAT_DIR"]

def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

def die():
    from peerwatch_spans.ring import STATE, STATE_AT
    now, file = time.perf_counter_ns(), peerwatch_spans._active._file
    # All is published once a second.
    wait_for(lambda: now < STATE.unpack_from(file.buffer, STATE_AT)[1])
    os.kill(os.getpid(), 9)
"""

# Killed at the end: what it wrote must be there all the same.
DDP = """
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

rank = int(os.environ["RANK"])
# As if on hosts of their own, the clock of one 300 ms ahead.
from peerwatch_spans import clock
clock.boot_id = lambda: str(rank)
if rank == 1:
    real_time_ns = time.time_ns
    time.time_ns = lambda: real_time_ns() + 300_000_000
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)

class Rows(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if rank == 1:
            time.sleep(0.1)
        return torch.ones(4)

model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = iter(DataLoader(Rows()))
for step in range(20):
    optimizer.zero_grad()
    model(next(rows)).sum().backward()
    optimizer.step()
wait_for(lambda: peerwatch_spans._active.clock.state(0, 0)["clock_source"])
work = dist.all_reduce(torch.ones(2), async_op=True)
work.wait()
dist.barrier()
gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
gather(torch.zeros(2), torch.ones(1))
torch.save(model.state_dict(), io.BytesIO())
die()
"""


@pytest.fixture
def hook(capsys):
    assert 0 == main(["hook-path"])
    return capsys.readouterr().out.strip()


@pytest.fixture
def start(hook, tmp_path):
    processes = []

    def run(code, *arguments, **variables):
        environment = {
            **os.environ,
            "PYTHONPATH": hook,
            "PEERWATCH_HEARTBEAT_DIR": str(tmp_path / "heartbeats"),
            "PEERWATCH_SPANS": "1",
            "PEERWATCH_SPANS_RECORDS": "4096",
            "PEERWATCH_JOB_ID": "job",
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            **variables,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        with process:
            process.kill()


def totals(header):
    return {total.segment: total for total in header.totals}


def test_slow_loader_of_one_rank_is_attributed_to_data(start, tmp_path):
    code = HEAD + DDP
    ranks = [start(code, str(tmp_path / "rendezvous"), RANK=str(r)) for r in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in ranks]
    assert [-9, -9] == [process.returncode for process in ranks], errors

    found = read_span_files(tmp_path / "heartbeats")
    assert () == found.problems
    (_, fast), (path, slow) = found.ranks
    steps = totals(slow)["step"]
    assert 19 == steps.count == totals(fast)["step"].count
    # Every step of both ranks takes as long; one of them spends it loading, the other waits.
    assert 2 <= totals(slow)["data"].seconds < 1.5 * steps.seconds
    assert totals(fast)["data"].seconds < totals(slow)["data"].seconds / 2
    assert totals(fast)["backward"].seconds > totals(slow)["backward"].seconds
    for header in (fast, slow):
        of = totals(header)
        assert 20 == of["optimizer"].count == of["backward"].count
        assert 5 <= of["forward"].count <= 20  # the model is found after the first step
        assert 1 == of["checkpoint"].count
        assert 3 == of["collective"].count
        assert 0 < of["gc"].count
        assert 0 == header.dropped

    assert "round_trips" == slow.clock.source
    assert 0.01 > abs(slow.clock.at(slow.updated) - 0.3)

    _, spans = read_spans(path, 1, 0, 4e9)
    spans = list(spans)
    loads = [span.duration for span in spans if span.segment == "data"]
    assert 0.1 <= min(loads[1:])
    reduce, barrier, gather = [
        (*span.detail[:2], span.value) for span in spans if span.segment == "collective"
    ]
    assert (("0", "all_reduce", 1), ("0", "barrier", 2)) == (reduce, barrier)
    assert (gather[1].startswith("all_gather_"), 3) == (True, gather[2])
    # By rank and step far below 5 KiB raw, and 200 bytes as a summary.
    assert 5120 > 24 * len(spans) / 20
    assert 200 > 16 * len([total for total in slow.totals if total.count])


UNUSUAL = """
import copy, pickle, threading
from peerwatch_spans import segment

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.fails = False
    def forward(self, x):
        if self.fails:
            raise KeyError("of the user")
        return self.layer(x)

model, other = Net(), Net()
compiled = torch.compile(model, backend="eager", fullgraph=True)
first, second = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, other))

def loop(steps):
    for _ in range(steps):
        for _ in range(3):  # gradients are accumulated
            (compiled(torch.ones(4)).sum() + other(torch.ones(4)).sum()).backward()
        first.step()
        second.step()

loader = torch.utils.data.DataLoader(list(range(6)), num_workers=2)
assert list(range(6)) == [int(row) for row in loader]  # loaded by forked children

loop(2)
wait_for(lambda: hasattr(Net.__call__, "is_timed"))
seen = torch._dynamo.utils.counters["stats"]["unique_graphs"]
loop(10)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == seen, "compiled again"

other.fails = True
for _ in range(3):
    try:
        with segment("risky"):
            other(torch.ones(4))
    except KeyError as error:
        assert error.args == ("of the user",)
other.fails = False
for _ in range(5):
    other(torch.ones(4))

# Models are copied, pickled, scripted and traced as without spans.
copy.deepcopy(model), copy.deepcopy(first)
assert b"peerwatch" not in pickle.dumps(torch.nn.Sequential(torch.nn.Linear(2, 2)))
torch.save(other, buffer := io.BytesIO())
assert b"peerwatch" not in buffer.getvalue()
torch.jit.script(torch.nn.Linear(2, 2)), torch.fx.symbolic_trace(other.layer)

threads = [threading.Thread(target=lambda: [segment("thread").__enter__() for _ in range(3)])]
threads += [threading.Thread(target=lambda: other(torch.ones(4))) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
for number in range(50):
    with segment(f"many-{number}"):
        pass
if not os.fork():
    with segment("child"):
        # From Python 3.13 on torch takes what it has compiled backward in no forked process.
        loop(1) if sys.version_info < (3, 13) else other(torch.ones(4))
    os._exit(0)
assert os.wait()[1] == 0
spec = sys.modules["torch.optim.optimizer"].__spec__
assert (type(spec.loader).__name__, spec.loader.name) == ("SourceFileLoader", spec.name)
wait_for(lambda: os.path.exists(heartbeats + "/rank-0.spans"))
print("fine", flush=True)
die()
"""


def test_unusual_programs_run_as_without_spans(start, tmp_path):
    process = start(HEAD + UNUSUAL)
    out, error = process.communicate(timeout=300)
    assert ("fine\n", -9) == (out, process.returncode), error
    ((_, header),) = read_span_files(tmp_path / "heartbeats").ranks
    of = totals(header)
    assert 11 == of["step"].count  # one optimiser counts them
    assert 24 == of["optimizer"].count
    assert 36 == of["backward"].count
    # Two models, three times a step from the third on, three that raised, five more, four threads.
    assert 72 <= of["forward"].count <= 78
    assert 3 == of["risky"].count
    assert 7 == of["data"].count  # the last one says that there is no more
    assert "child" not in of
    assert 40 == len(of)
    assert 50 - (32 - 2) == header.dropped


@pytest.mark.parametrize("spans", ["0", ""])
def test_segments_do_nothing_where_spans_are_off(start, tmp_path, spans):
    code = "from peerwatch_spans import segment\nwith segment('x'): print('ran')"
    process = start(code, PEERWATCH_SPANS=spans)
    assert ("ran\n", "") == process.communicate(timeout=300)
    assert not list(tmp_path.glob("heartbeats/*.spans"))


def test_job_that_ends_leaves_no_file_and_its_helpers_none_either(start, tmp_path):
    code = (
        "import subprocess\n"
        "own = heartbeats + '/rank-0.spans'\n"
        "optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)\n"
        "optimizer.step()\n"
        "wait_for(lambda: os.path.exists(own))\n"
        "os.rename(own, own + '-aside')\n"
        "child = 'import torch, time, peerwatch_spans\\n' "
        "'torch.optim.SGD([torch.ones(1)], lr=0.1).step()\\n' "
        "'peerwatch_spans._active._open_if_rank()'\n"
        "subprocess.run([sys.executable, '-c', child], check=True)\n"
        "print(os.path.exists(own))\n"
        "os.rename(own + '-aside', own)\n"
    )
    process = start(HEAD + code)
    out, error = process.communicate(timeout=300)
    assert ("False\n", 0) == (out, process.returncode), error
    assert [] == list(Path(tmp_path / "heartbeats").iterdir())
