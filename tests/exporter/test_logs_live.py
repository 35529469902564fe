"""Real processes write files, and the exporter's own process reads them."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from collectives_cases import wait_for
from hardware_cases import only
from log_cases import PATIENCE_SECONDS, Job
from peerwatch_exporter.collectors.logs import log_settings
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.logs import LogsConfig
from peerwatch_exporter.sources.logs.process import LogProcess

# Says what it is told, and raises what it is told to.
RANK = """
import sys
for line in sys.stdin:
    if line.startswith("raise "):
        raise RuntimeError(line[6:].strip())
    print(line, end="")
"""
LOST = "Connection closed by peer [10.0.0.7]:1234"
GLOO = f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] {LOST}"
# Reads like the real process, until something below a directory named hung is opened.
HANGS = """
import os, sys, time
opened = os.open
def hanging(path, *more, **named):
    if isinstance(path, str) and "/fd/" in path and "hung" in os.readlink(path):
        time.sleep(3600)
    return opened(path, *more, **named)
os.open = hanging
from peerwatch_exporter.sources.logs.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    made.close()


def say(process, text):
    process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()


def events(samples):
    """Return how often which class of error was counted, by rank."""
    counts = only(samples, "log_class_events_total")
    return {key[1:]: count for key, count in counts.items() if count}


def followed(samples):
    return sum(only(samples, "log_files").values())


def test_a_rank_fails_and_another_complains_about_its_peer(job):
    ranks = [job.rank(rank, RANK) for rank in range(2)]
    first = job.wait_for(lambda samples: followed(samples) == 2)
    zeros = only(first, "log_class_events_total")
    assert {("job", "0", "D"): 0, ("job", "1", "H"): 0}.items() <= zeros.items()

    say(ranks[0], "raise CUDA error: an illegal memory access was encountered")
    say(ranks[1], GLOO)
    after = job.wait_for(lambda samples: len(events(samples)) >= 2)

    assert {"0", "1"} == {rank for rank, _ in events(after)}
    (complaint,) = only(after, "log_peer_errors_total")
    assert ("job", "1", "10.0.0.7") == complaint[:3]
    assert {"0", "1"} >= {key[1] for key in only(after, "log_first_error_timestamp_seconds")}
    assert job.error is None


def test_what_a_killed_rank_said_last_counts(job, tmp_path):
    rank = job.rank(0, RANK)
    job.wait_for(lambda samples: followed(samples) == 1)
    say(rank, GLOO)
    assert wait_for(lambda: LOST in (tmp_path / "rank-0.log").read_text(), PATIENCE_SECONDS)
    rank.send_signal(signal.SIGKILL)
    rank.wait()
    assert {("0", "D"): 1} == events(job.wait_for(events))


def test_a_log_that_is_rotated_loses_and_doubles_nothing(tmp_path):
    job = Job(tmp_path, processes=False, paths=[f"{tmp_path}/rank-{{rank}}.log*"])
    try:
        rank = job.rank(0, RANK)
        job.wait_for(lambda samples: followed(samples) == 1)
        say(rank, GLOO)
        job.wait_for(lambda samples: events(samples) == {("0", "D"): 1})
        (tmp_path / "rank-0.log").rename(tmp_path / "rank-0.log.1")
        (tmp_path / "rank-0.log").write_text(GLOO + "\n")
        say(rank, GLOO)
        job.wait_for(lambda samples: followed(samples) == 2)
        job.wait_for(lambda samples: events(samples) == {("0", "D"): 3})
        with (tmp_path / "rank-0.log").open("r+") as file:
            file.truncate()
            file.write("other " + GLOO + "\n")
        job.wait_for(lambda samples: events(samples) == {("0", "D"): 4})
    finally:
        job.close()


def test_a_rank_that_writes_to_a_pipe_is_counted_and_not_read(job):
    reader, writer = os.pipe()
    job.rank(0, RANK, output=os.fdopen(writer, "ab"))
    os.close(reader)
    samples = job.wait_for(lambda samples: only(samples, "log_unread_outputs"))
    assert {("pipe",): 2} == only(samples, "log_unread_outputs")
    assert 0 == followed(samples)


def test_a_reader_that_was_killed_goes_on_where_it_was(job):
    rank = job.rank(0, RANK)
    job.wait_for(lambda samples: followed(samples) == 1)
    say(rank, GLOO)
    job.wait_for(lambda samples: events(samples) == {("0", "D"): 1})
    # The position is part of the same report as the count.
    (reader,) = [
        pid for pid, each in job.sources.own_processes._processes.items() if each.kind == "logs"
    ]
    os.kill(reader, signal.SIGKILL)
    job.wait_for(lambda samples: only(samples, "log_reader_restarts_total") == {(): 1})
    say(rank, GLOO)
    job.wait_for(lambda samples: events(samples) == {("0", "D"): 2})


def test_a_file_system_that_hangs_costs_only_its_own_files(tmp_path):
    (tmp_path / "hung").mkdir()
    job = Job(tmp_path)
    config = ExporterConfig(logs=LogsConfig(enabled=True, kernel=False, pods_directory=None))
    job.collector._process = LogProcess(
        log_settings(config, job.sources.paths, job.sources.clock()),
        job.sources,
        100,
        command=(sys.executable, "-c", HANGS),
        hang_seconds=1.0,
    )
    try:
        job.rank(0, RANK, output=(tmp_path / "hung" / "rank-0.log").open("ab"))
        samples = job.wait_for(lambda samples: only(samples, "log_unread_outputs").get(("hung",)))
        assert job.error == "log_hung"
        assert 0 == followed(samples)
    finally:
        job.close()


def test_signatures_with_mistakes_are_said_and_nothing_else_fails(tmp_path):
    (tmp_path / "own.yaml").write_text("signatures: {Bad Name: {}}\n")
    job = Job(tmp_path, signatures=[tmp_path / "own.yaml"])
    try:
        assert job.wait_for(lambda _: job.error is not None) == {}
        assert job.error == "signatures_refused"
    finally:
        job.close()


def test_the_kernel_log_counts_for_the_node_without_xids(tmp_path):
    (tmp_path / "kmsg").write_text(
        "4,1,1000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
        "3,2,2000000,-;Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB\n"
    )
    job = Job(tmp_path, kernel=True)
    try:
        samples = job.wait_for(events)
        keys = set(only(samples, "log_events_total"))
        assert {("", "")} == {key[:2] for key in keys}
        assert not any("xid" in key[3] for key in keys)
    finally:
        job.close()
