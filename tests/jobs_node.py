"""A node with processes, ranks and GPUs, for the tests of its jobs."""

from __future__ import annotations

from fake_kubelet import container, devices, kubelet, pods
from hardware_cases import FakeClock, only
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.settings.config import (
    ExporterConfig,
    HeartbeatConfig,
    JobsConfig,
)
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.host.access import Paths
from procfs_tree import ProcTree

UUIDS = tuple(f"GPU-{n}0000000-1111-2222-3333-444444444444" for n in range(8))


MIG = "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"


POD_UID = "0c4e2b9a-58f1-4d5b-9a43-6f0a1c2d3e4f"


CONTAINER_ID = "3baf66ee56a52a8765c3deb2444315411a888fa3e2f8f7ddd75e9ded3c34425e"


IN_POD = f"0::/kubepods/burstable/pod{POD_UID}/{CONTAINER_ID}\n"


POD_ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


class Node:
    """A node with 8 GPUs, whose providers are files, a process tree and the driver's facts."""

    def __init__(self, root):
        self.root = root
        self.tree = ProcTree(root / "proc").machine()
        self.clock = FakeClock()
        paths = Paths(self.tree.root, self.tree.root, self.tree.root)
        self.sources = Sources(paths, clock=self.clock, monotonic=self.clock)
        self.jobs = {"mapping_directory": None, "pod_resources_socket": root / "kubelet.sock"}
        self.more = {}
        self.error = None
        self._collector = None

    def boards(self):
        self.sources.gpus.update_boards(
            [GpuIdentity(index, uuid) for index, uuid in enumerate(UUIDS)]
        )

    def map(self, name, *job_ids):
        directory = self.root / "jobs"
        directory.mkdir(exist_ok=True)
        self.jobs["mapping_directory"] = directory
        (directory / name).write_text("".join(f"{job_id}\n" for job_id in job_ids))
        return directory / name

    def process(self, pid, cgroup="0::/init.scope\n", environment=None, gpus=()):
        self.tree.process(pid, environment)
        self.tree.write(f"{pid}/cgroup", cgroup)
        for gpu in gpus:
            pids = self.sources.gpus.processes().get(gpu, ())
            self.sources.gpus.update_processes({gpu: (*pids, pid)})

    def slurm(self, pid, job, gpus=(), environment=None):
        self.process(pid, f"9:memory:/slurm/uid_1000/job_{job}/step_0/task_0\n", environment, gpus)

    def config(self):
        (self.root / "heartbeats").mkdir(parents=True, exist_ok=True)
        heartbeat = HeartbeatConfig(directory=self.root / "heartbeats")
        return ExporterConfig(heartbeat=heartbeat, jobs=JobsConfig(**self.jobs), **self.more)

    def collect(self):
        """Return the samples of one run; ``error`` is what was said to be missing."""
        self._collector = self._collector or JobsCollector(self.config(), self.sources)
        self.error = None
        samples = {}
        try:
            for family in self._collector.collect():
                for sample in family.samples:
                    key = (sample.name, *sample.labels.values())
                    assert key not in samples
                    samples[key] = sample.value
        except PartialData as error:
            self.error = error
        return samples

    def rows(self):
        """Return (gpu, job_id, scheduler, user, namespace, pod, container) of each row."""
        rows = only(self.collect(), "gpu_job_info")
        assert len({(key[0] or key[1], key[2]) for key in rows}) == len(rows)
        return {(key[0], *key[2:]) for key in rows}

    def on_kubelet(self, *listed):
        return kubelet(self.jobs["pod_resources_socket"], pods(*listed))


def rank_of(rank, world_size=4, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "PEERWATCH_JOB_ID": "job", **more}


def gpu_container(name, *uuids, resource="nvidia.com/gpu"):
    return container(name, devices(resource, *uuids))
