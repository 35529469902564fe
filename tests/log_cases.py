"""Logs of jobs for tests: claims, targets, followers, and the collector over real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from hardware_cases import FakeClock
from peerwatch_exporter.collectors.logs import LogsCollector
from peerwatch_exporter.collectors.ranks import RanksCollector
from peerwatch_exporter.errors import NoData, PartialData, error_class
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.logs import LogsConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.logs.follower import Follower
from peerwatch_exporter.sources.logs.found import Claim, HungError
from peerwatch_exporter.sources.logs.owners import Owner
from peerwatch_exporter.sources.logs.process import LogReaderError
from peerwatch_exporter.sources.logs.tail import Position
from peerwatch_exporter.sources.logs.targets import RankTarget
from signature_tables import shipped_table

TABLE = shipped_table("job")
OWNER = Owner("job", 0)
BEGINNING = Position(0, b"")
CUDA = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
GLOO = (
    b"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
    b"Connection closed by peer [10.0.0.7]:1234\n"
)
# Tests on machines that are busy wait this long for what happens within seconds.
PATIENCE_SECONDS = 300


class OpenGuard:
    """Lets everything be touched but what hung."""

    def __init__(self):
        self.hung = set()

    def enter(self, group):
        if group in self.hung:
            raise HungError(group)

    def leave(self):
        pass


def claim_of(path, job_id="job", rank=0, **more):
    return Claim(str(path), "group", "path", path.stat(), job_id, rank, **more)


def rank_target(rank=0, *, job_id="job", pid=1, world_size=4, **more):
    facts = {"local_rank": rank, "pod_uid": "", "run_directory": "", **more}
    return RankTarget(job_id, rank, facts["local_rank"], world_size, pid, facts["pod_uid"],
                      facts["run_directory"])  # fmt: skip


class Reading:
    """A follower over files of a directory, by a clock that is moved."""

    def __init__(self, *, max_files=100, max_bytes_per_second=1 << 20):
        self.clock = FakeClock()
        self.guard = OpenGuard()
        self.follower = Follower(
            TABLE,
            self.guard,
            max_files=max_files,
            max_bytes_per_second=max_bytes_per_second,
            clock=self.clock,
            monotonic=self.clock,
        )

    def follow(self, path, position=BEGINNING, *, old=False, **claim):
        return self.follower.follow(claim_of(path, **claim), OWNER, position, old=old)

    def events(self, seconds=5.0):
        """Return the signatures of what was written, after some seconds of ticks."""
        found = []
        for _ in range(int(seconds)):
            self.clock.now += 1
            found += [event.signature.id for event, _, _ in self.follower.tick()]
        return found


class Job:
    """Processes that pose as ranks, and the exporter that reads what they print."""

    def __init__(self, directory, **logs):
        self.directory = Path(directory)
        mark = {"PEERWATCH_TEST_NODE": str(directory)}
        self._environment = {**os.environ, **mark, "WORLD_SIZE": "4", "PEERWATCH_JOB_ID": "job"}
        self.processes = []
        config = ExporterConfig(
            scope={"kind": "processes", "environment": mark},
            logs=LogsConfig(enabled=True, **{"kernel": False, "pods_directory": None, **logs}),
        )
        paths = Paths(Path("/proc"), Path("/sys"), self.directory / "kmsg")
        self.sources = Sources(paths)
        self._ranks = RanksCollector(config, self.sources)
        self.collector = LogsCollector(config, self.sources)
        self.error = None

    def rank(self, rank, program, output=None):
        """Start a rank whose output goes to a file, by default ``rank-<rank>.log``."""
        path = self.directory / f"rank-{rank}.log"
        with output or path.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", program],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                env={**self._environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
        self.processes.append(process)
        return process

    def find_ranks(self):
        """Have the exporter know its ranks, which it lists for all collectors at once."""
        for _ in _collected(self._ranks):
            pass

    def samples(self):
        """Return what is published; ``error`` is the class of what is missing."""
        self.error = None
        self.find_ranks()
        samples = {}
        try:
            for family in self.collector.collect():
                for sample in family.samples:
                    samples[sample.name, *sample.labels.values()] = sample.value
        except PartialData as error:
            self.error = error.error_class or error_class(error.__cause__)
        except LogReaderError as error:
            self.error = error.error_class
        except NoData:
            pass
        return samples

    def wait_for(self, condition):
        """Return the first samples of which a condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            samples = self.samples()
            if condition(samples):
                return samples
            time.sleep(0.2)
        raise AssertionError(f"not within {PATIENCE_SECONDS} s: {samples}, {self.error}")

    def close(self):
        self.collector.close()
        for process in self.processes:
            process.kill()
            with process:
                pass


def _collected(collector):
    try:
        yield from collector.collect()
    except (NoData, PartialData):
        return
