"""Training jobs: each provider alone, and what becomes of them together."""

from __future__ import annotations

import os
import re

import pytest

from fake_kubelet import container, devices, kubelet, pod, pods
from hardware_cases import NOW, FakeClock, collected, only
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.collectors.ranks import RanksCollector
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.settings.config import (
    ExporterConfig,
    HeartbeatConfig,
    JobsConfig,
    ScopeConfig,
)
from peerwatch_exporter.settings.pod_names import check_naming
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.readings import GpuIdentity
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.processes import ProcessTable, read_file
from peerwatch_exporter.sources.jobs.merge import MOST_JOBS
from peerwatch_exporter.sources.jobs.pod_names import PodNaming
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
        (self.root / "beats").mkdir(parents=True, exist_ok=True)
        heartbeat = HeartbeatConfig(directory=self.root / "beats")
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


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def rank_of(rank, world_size=4, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "PEERWATCH_JOB_ID": "job", **more}


def gpu_container(name, *uuids, resource="nvidia.com/gpu"):
    return container(name, devices(resource, *uuids))


def test_idle_node_has_no_job_and_says_which_providers_it_asked(node):
    samples = node.collect()
    assert {("environment",): 1, ("heartbeat",): 1} == only(samples, "exporter_job_provider_up")
    assert {"exporter_job_provider_up"} == {key[0] for key in samples}


# The mapping directory


def test_mapping_names_jobs_of_gpus_slices_and_node(node):
    node.boards()
    node.map("0", "4711")
    node.map("1.2", "mig")
    node.map("1.3", "mig", "other")
    node.map("2")
    node.map("node", "cpu", "4711")
    samples = node.collect()
    assert {("cpu", "mapping"), ("4711", "mapping"), ("mig", "mapping"), ("other", "mapping")} == (
        set(only(samples, "host_job_info"))
    )
    assert {
        ("0", UUIDS[0], "4711", "mapping", "", "", "", ""),
        ("1", UUIDS[1], "mig", "mapping", "", "", "", ""),
        ("1", UUIDS[1], "other", "mapping", "", "", "", ""),
    } == set(only(samples, "gpu_job_info"))
    assert {("0",): 1, ("1",): 2, ("2",): 0} == only(samples, "gpu_jobs")


def test_mapping_wins_over_the_environment_for_the_same_job(node):
    node.map("0", "job")
    node.map("2")
    node.map("node", "cpu", "job")
    node.process(11, environment=rank_of(0, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="3"))
    slurm = rank_of(0, PEERWATCH_JOB_ID="env", LOCAL_RANK="1", SLURM_JOB_GPUS="4-5")
    node.process(12, environment=slurm)
    for rank, job_id in ((9, "inside"), (8, "job")):
        node.tree.write(
            f"../beats/rank-{rank}.json", f'{{"rank":{rank},"time":{NOW},"job_id":"{job_id}"}}'
        )
    samples = node.collect()
    assert {
        ("cpu", "mapping"),
        ("job", "mapping"),
        ("env", "peerwatch"),
        ("inside", "peerwatch"),
    } == set(only(samples, "host_job_info"))
    assert {("0", "job"), ("5", "env")} == {row[:2] for row in node.rows()}
    assert {("0",): 1, ("2",): 0, ("5",): 1} == only(samples, "gpu_jobs")


def test_shared_gpu_counts_its_jobs(node):
    node.map("0", "a", "b", "a")
    assert {("0",): 2} == only(node.collect(), "gpu_jobs")


def pipe(path):
    os.mkfifo(path)


GARBAGE = {
    "binary": ("binary", lambda path: path.write_bytes(b"\x7fELF\xff\xfe")),
    "zeros": ("binary", lambda path: path.write_bytes(bytes(64))),
    "huge": ("too_large", lambda path: path.write_bytes(b"7\n" * 40_000)),
    "directory": ("not_a_file", lambda path: path.mkdir()),
    "pipe without a writer": ("not_a_file", pipe),
    "device": ("not_a_file", lambda path: path.symlink_to("/dev/zero")),
    "symlink loop": ("unreadable", lambda path: path.symlink_to(path.name)),
    "below a file": ("unreadable", lambda path: path.symlink_to(path.parent / "1" / "x")),
    "endless line": ("job_id", lambda path: path.write_text("x" * 129)),
    "control characters": ("job_id", lambda path: path.write_text("4\x1b[2J\n")),
    "too many jobs": (
        "too_many_jobs",
        lambda path: path.write_text("\n".join(map(str, range(65)))),
    ),
}


@pytest.mark.parametrize(("reason", "make"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_named_once_and_counted_and_the_others_work(node, caplog, reason, make):
    make(node.map("1", "good").with_name("0"))
    samples = node.collect()
    assert ("1", "good") in {row[:2] for row in node.rows()}
    assert None is node.error
    assert 1 == samples["exporter_job_mapping_errors_total", reason]
    assert 3 == node.collect()["exporter_job_mapping_errors_total", reason]
    named = [record.getMessage() for record in caplog.records if "mapping file" in record.message]
    assert 1 == len(named)
    assert re.search(rf"file='[^']*/0' reason={reason} detail=", named[0])


@pytest.mark.parametrize("name", ["gpu0", "0.1.2", "1000", "0~", "README", "-1", "0 "])
def test_file_of_another_name_is_named_and_counted(node, caplog, name):
    node.map("1", "good")
    node.map(name, "bad")
    samples = node.collect()
    assert {("1", "good")} == {row[:2] for row in node.rows()}
    assert 1 == samples["exporter_job_mapping_errors_total", "name"]
    assert 1 == sum("reason=name" in record.getMessage() for record in caplog.records)


def test_files_under_construction_are_passed_over(node, caplog):
    node.map("1", "good")
    node.map(".0.tmp", "bad")
    assert 0 == sum(only(node.collect(), "exporter_job_mapping_errors_total").values())
    assert [] == caplog.records


def test_good_lines_of_a_file_with_a_bad_one_count(node):
    node.map("0", "good", "x" * 129, "better")
    assert {"good", "better"} == {row[1] for row in node.rows()}


def test_repaired_file_is_named_again_when_it_breaks_again(node, caplog):
    path = node.map("0", "\0")
    node.collect()
    path.write_text("7\n")
    node.collect()
    path.write_text("\0")
    node.collect()
    assert 2 == len(caplog.records)


def test_unreadable_file_is_an_error_of_its_own(node, monkeypatch):
    node.map("0", "secret")
    node.map("1", "good")
    real = os.open

    def refuse(path, *rest):
        if str(path).endswith("/0"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    samples = node.collect()
    assert 1 == samples["exporter_job_mapping_errors_total", "unreadable"]
    assert {("1",): 1} == only(samples, "gpu_jobs")


def test_flood_of_files_and_jobs_is_bounded(node):
    for gpu in range(100):
        node.map(str(gpu), *(f"{gpu}-{n}" for n in range(60)))
    samples = node.collect()
    assert MOST_JOBS == len(only(samples, "host_job_info"))
    assert "jobs_too_many_jobs" == node.error.error_class


def test_missing_heartbeat_directory_is_said_and_the_environment_still_counts(node):
    node.process(11, environment=rank_of(0))
    config = node.config()
    (node.root / "beats").rmdir()
    samples, said = {}, None
    try:
        for family in JobsCollector(config, node.sources).collect():
            samples |= {(family.spec.name, *labels): value for labels, value in family.rows}
    except PartialData as error:
        said = error

    assert 1 == samples["host_job_info", "job", "peerwatch"]
    assert 0 == samples["exporter_job_provider_up", "heartbeat"]
    assert "heartbeat_directory_not_found" == said.error_class
    assert "Create the directory" in str(said)


def test_missing_mapping_directory_is_said_and_the_environment_still_counts(node):
    node.map("0", "x").unlink()
    node.jobs["mapping_directory"].rmdir()
    node.process(11, environment=rank_of(0))
    samples = node.collect()
    assert {("job", "peerwatch"): 1} == only(samples, "host_job_info")
    assert {("mapping",): 0, ("environment",): 1, ("cgroup",): 1, ("heartbeat",): 1} == only(
        samples, "exporter_job_provider_up"
    )
    assert "mapping_os_error" == node.error.error_class


# The environment


def test_local_rank_picks_the_gpu_where_no_variable_does(node):
    for bus in ("0000:18:00.0", "0000:2a:00.0"):
        node.tree.write(f"driver/nvidia/gpus/{bus}/information", "Model: \n")
    node.process(11, environment=rank_of(5, world_size=8, LOCAL_RANK="1"))
    node.process(12, environment=rank_of(7, world_size=8, LOCAL_RANK="3"))
    assert {("1", "job")} == {row[:2] for row in node.rows()}


@pytest.mark.parametrize("visible", ["", "GPU-1234,GPU-5678", "MIG-1", "all", "0-", "9" * 9999])
def test_gpus_that_are_not_known_are_not_guessed(node, visible):
    environment = rank_of(0, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=visible)
    node.process(11, environment=environment)
    samples = node.collect()
    assert {} == only(samples, "gpu_job_info")
    assert {("job", "peerwatch"): 1} == only(samples, "host_job_info")


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        pytest.param({"CUDA_VISIBLE_DEVICES": f"{UUIDS[6]},{UUIDS[4]}"}, {"4"}, id="uuids"),
        pytest.param({"CUDA_VISIBLE_DEVICES": UUIDS[6][:12]}, {"6"}, id="beginning of a uuid"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-"}, set(), id="no uuid"),
        pytest.param(
            {**POD_ENVIRONMENT, "NVIDIA_VISIBLE_DEVICES": f"{UUIDS[5]},{UUIDS[2]}"},
            {"2"},
            id="container's boards",
        ),
        pytest.param(
            {
                **POD_ENVIRONMENT,
                "NVIDIA_VISIBLE_DEVICES": f"{UUIDS[5]},{UUIDS[2]}",
                "CUDA_VISIBLE_DEVICES": "0",
            },
            {"5"},
            id="index of the container's boards",
        ),
        pytest.param(
            {**POD_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "1"}, set(), id="index in a container"
        ),
        pytest.param(POD_ENVIRONMENT, set(), id="local rank in a container"),
    ],
)
def test_gpus_of_a_rank_are_read_by_uuid_and_in_containers(node, variables, gpus):
    node.boards()
    node.process(11, environment=rank_of(1, LOCAL_RANK="1", **variables))
    assert gpus == {row[0] for row in node.rows()}


def test_environment_and_control_groups_can_be_left_out(node):
    node.jobs |= {"environment": False, "cgroups": False}
    node.slurm(11, 7, gpus=[0], environment=rank_of(0))
    assert set() == node.rows()
    assert {("heartbeat",): 1} == only(node.collect(), "exporter_job_provider_up")


def test_refused_environments_cost_only_themselves(node):
    def refuse(path):
        if path.endswith("/environ"):
            raise PermissionError(13, "Permission denied", path)
        return read_file(path)

    table = ProcessTable(node.tree.root, monotonic=node.clock, read=refuse)
    vars(node.sources)["processes"] = table
    node.slurm(11, 7, gpus=[3])
    assert {("3", "7", "slurm", "1000", "", "", "")} == node.rows()
    assert "environment_permission_denied" == node.error.error_class


# Processes on the GPUs and their control groups


def test_two_slurm_jobs_on_one_node_hold_the_gpus_their_processes_use(node):
    node.boards()
    for gpu in range(8):
        node.slurm(100 + gpu, 7 if gpu < 4 else 8, gpus=[gpu])
    assert {
        (str(gpu), "7" if gpu < 4 else "8", "slurm", "1000", "", "", "") for gpu in range(8)
    } == node.rows()


def test_name_of_the_user_and_of_the_job_come_from_the_environment(node):
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "ada", "PEERWATCH_JOB_ID": "llm-70b"}
    node.slurm(100, 7, gpus=[2], environment=environment)
    node.slurm(101, 7, gpus=[3])
    assert {
        ("2", "llm-70b", "slurm", "ada", "", "", ""),
        ("3", "llm-70b", "slurm", "1000", "", "", ""),
    } == node.rows()
    assert 1 == len(only(node.collect(), "host_job_info"))


def test_job_that_mapping_slurm_and_the_job_itself_name_is_one(node):
    node.map("0", "7")
    node.slurm(100, 7, gpus=[0], environment=rank_of(0, PEERWATCH_JOB_ID="llm", SLURM_JOB_ID="7"))
    assert {("0", "llm", "mapping", "1000", "", "", "")} == node.rows()
    assert {("0",): 1} == only(node.collect(), "gpu_jobs")


def test_what_the_driver_sees_wins_over_what_the_environment_makes_likely(node):
    environment = rank_of(0, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="0")
    node.process(11, environment=environment, gpus=[6])
    assert {"6"} == {row[0] for row in node.rows()}


def test_watched_gpu_without_a_job_is_free(node):
    node.sources.gpus.update_processes({0: (), 1: ()})
    node.process(11, gpus=[1])
    node.slurm(12, 7, gpus=[2])
    assert {("0",): 0, ("1",): 0, ("2",): 1} == only(node.collect(), "gpu_jobs")


def test_process_of_another_pid_namespace_is_said_to_be_hidden(node):
    node.slurm(12, 7, gpus=[2])
    node.sources.gpus.update_processes({1: (4242,)})
    assert {("2", "7")} == {row[:2] for row in node.rows()}
    assert None is node.error
    node.clock.now += 1
    samples = node.collect()
    assert "cgroup_processes_hidden" == node.error.error_class
    assert "hostPID" in str(node.error)
    assert 0 == samples["exporter_job_provider_up", "cgroup"]
    assert {("2",): 1} == only(samples, "gpu_jobs")


def test_process_that_just_ended_is_not_hidden(node):
    node.slurm(12, 7, gpus=[2])
    node.collect()
    node.tree.end(12)
    node.clock.now += 1
    node.collect()
    node.sources.gpus.update_processes({2: ()})
    node.clock.now += 1
    samples = node.collect()
    assert (None, {("2",): 0}) == (node.error, only(samples, "gpu_jobs"))


def test_of_a_machine_that_plays_several_nodes_only_marked_processes_count(node):
    scope = ScopeConfig(kind="processes", environment={"PEERWATCH_NODE": "a"})
    node.more["scope"] = scope
    node.slurm(11, 7, gpus=[0], environment=rank_of(0, PEERWATCH_NODE="a", SLURM_JOB_ID="7"))
    node.slurm(12, 8, gpus=[1], environment=rank_of(1, PEERWATCH_NODE="b", SLURM_JOB_ID="8"))
    assert {("0", "job")} == {row[:2] for row in node.rows()}


def test_job_with_two_ids_is_one_also_where_no_control_group_tells(node):
    node.map("0", "7")
    node.process(11, environment=rank_of(0, PEERWATCH_JOB_ID="llm", SLURM_JOB_ID="7"))
    assert {("0", "llm", "mapping", "", "", "", "")} == node.rows()


def test_rank_that_is_a_zombie_still_belongs_to_its_job(node):
    node.map("0", "other")
    node.process(11, environment=rank_of(0))
    for _ in range(3):
        node.collect()
        node.clock.now += 61
    node.tree.process(11, {}, state="Z")
    assert ("host_job_info", "job", "peerwatch") in node.collect()


# Pods


def test_pods_of_one_job_have_one_job_id_without_any_process(node):
    node.boards()
    with node.on_kubelet(
        pod("ml", "train-worker-3", gpu_container("pytorch", UUIDS[0], UUIDS[1])),
        pod("ml", "train-worker-4", container("proxy"), gpu_container("pytorch", UUIDS[2])),
        pod("kube-system", "coredns-5d78c9869d-4xkzm", container("coredns")),
    ):
        samples = node.collect()
    assert {
        ("0", UUIDS[0], "ml/train", "kubernetes", "", "ml", "train-worker-3", "pytorch"),
        ("1", UUIDS[1], "ml/train", "kubernetes", "", "ml", "train-worker-3", "pytorch"),
        ("2", UUIDS[2], "ml/train", "kubernetes", "", "ml", "train-worker-4", "pytorch"),
    } == set(only(samples, "gpu_job_info"))
    assert {("ml/train", "kubernetes"): 1} == only(samples, "host_job_info")
    assert 1 == samples["exporter_job_provider_up", "pod_resources"]


def test_pod_takes_the_job_id_of_the_process_inside(node):
    node.boards()
    environment = {**POD_ENVIRONMENT, **rank_of(0), "HOSTNAME": "train-worker-3"}
    node.process(50, IN_POD, environment, gpus=[0])
    with node.on_kubelet(pod("ml", "train-worker-3", gpu_container("pytorch", *UUIDS[:2]))):
        assert {
            ("0", "job", "peerwatch", "", "ml", "train-worker-3", "pytorch"),
            ("1", "job", "peerwatch", "", "ml", "train-worker-3", "pytorch"),
        } == node.rows()


def test_process_without_a_job_id_takes_its_pods(node):
    node.boards()
    node.process(50, IN_POD, gpus=[0])
    with node.on_kubelet(pod("ml", "train-b4wmz", gpu_container("main", UUIDS[0]))):
        assert {("0", "ml/train", "kubernetes", "", "ml", "train-b4wmz", "main")} == node.rows()


def test_rank_without_a_job_id_takes_its_pods(node):
    node.boards()
    rank = {"RANK": "3", "WORLD_SIZE": "8", **POD_ENVIRONMENT, "HOSTNAME": "train-b4wmz"}
    node.process(50, IN_POD, rank, gpus=[0])
    with node.on_kubelet(pod("ml", "train-b4wmz", gpu_container("main", UUIDS[0]))):
        assert ("host_job_info", "ml/train", "kubernetes") in node.collect()
    ranks = collected(RanksCollector(node.config(), node.sources))
    assert {("ml/train", "3", "", "8", "50"): 1} == only(ranks, "rank_info")
    assert {"ml/train"} == {key[1] for key in ranks}


def test_families_are_the_same_as_long_as_nobody_says_anything_else(node):
    node.boards()
    node.slurm(50, 7, gpus=[0], environment=rank_of(0))
    collector = JobsCollector(node.config(), node.sources)

    def jobs():
        node.clock.now += 1
        return [family for family in collector.collect() if family.spec.name.endswith("job_info")]

    first = jobs()
    assert first == jobs()
    node.slurm(60, 8, gpus=[1])
    changed = jobs()
    assert [2, 2] == [len(family.rows) for family in changed]
    assert changed == jobs()


def test_pods_that_share_a_gpu_are_told_apart_by_their_processes(node):
    node.boards()
    listed = [
        pod("ml", f"{name}-b4wmz", gpu_container("main", f"{UUIDS[0]}::{n}"))
        for n, name in enumerate(("one", "two"))
    ]
    for pid, name in ((50, "one"), (51, "two")):
        environment = {**POD_ENVIRONMENT, **rank_of(0, PEERWATCH_JOB_ID=f"run-{name}")}
        node.process(pid, IN_POD, {**environment, "HOSTNAME": f"{name}-b4wmz"}, gpus=[0])
    with node.on_kubelet(*listed):
        assert {
            ("0", f"run-{name}", "peerwatch", "", "ml", f"{name}-b4wmz", "main")
            for name in ("one", "two")
        } == node.rows()
    assert {("0",): 2} == only(node.collect(), "gpu_jobs")


def test_two_pods_of_one_job_on_one_gpu_are_one_row(node):
    node.boards()
    listed = [
        pod("ml", f"train-worker-{n}", gpu_container("main", f"{UUIDS[0]}::{n}")) for n in (0, 1)
    ]
    with node.on_kubelet(*listed):
        assert {("0", "ml/train", "kubernetes", "", "ml", "", "main")} == node.rows()
    assert {("0",): 1} == only(node.collect(), "gpu_jobs")


def test_mig_slice_keeps_its_uuid_and_has_no_gpu(node):
    node.boards()
    held = gpu_container("main", MIG, resource="nvidia.com/mig-1g.10gb")
    with node.on_kubelet(pod("ml", "small-b4wmz", held)):
        samples = node.collect()
    assert {("", MIG, "ml/small", "kubernetes", "", "ml", "small-b4wmz", "main"): 1} == only(
        samples, "gpu_job_info"
    )
    assert {} == only(samples, "gpu_jobs")


def test_process_on_a_slice_tells_the_gpu_of_its_pod(node):
    node.boards()
    node.process(50, IN_POD, gpus=[3])
    held = gpu_container("main", MIG, resource="nvidia.com/mig-1g.10gb")
    with node.on_kubelet(pod("ml", "small-b4wmz", held)):
        assert {("3", "ml/small"), ("", "ml/small")} == {row[:2] for row in node.rows()}


def test_pod_without_gpu_is_a_job_only_if_a_rank_runs_in_it(node):
    node.process(
        50,
        IN_POD,
        {**POD_ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "2", "HOSTNAME": "prep-0-b4wmz"},
    )
    node.process(51, IN_POD, {**POD_ENVIRONMENT, "HOSTNAME": "web-b4wmz"})
    with node.on_kubelet(
        pod("ml", "prep-0-b4wmz", container("main")), pod("ml", "web-b4wmz", container("main"))
    ):
        samples = node.collect()
    assert {("ml/prep", "kubernetes"): 1} == only(samples, "host_job_info")
    assert {} == only(samples, "gpu_job_info")


def test_pod_the_kubelet_does_not_name_is_a_job_by_its_uid(node):
    node.process(50, IN_POD, gpus=[1])
    assert {("1", POD_UID, "kubernetes", "", "", "", CONTAINER_ID[:12])} == node.rows()


def test_slurm_jobs_inside_a_pod_keep_their_gpus_apart(node):
    node.boards()
    for pid, job, gpu in ((60, 7, 0), (61, 8, 1)):
        path = f"{IN_POD.strip()}/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n"
        node.process(pid, path, gpus=[gpu])
    with node.on_kubelet(pod("slurm", "worker-0", gpu_container("slurmd", *UUIDS[:3]))):
        rows = node.rows()
    uid = str(os.getuid())
    assert {
        ("0", "7", "slurm", uid, "slurm", "worker-0", "slurmd"),
        ("1", "8", "slurm", uid, "slurm", "worker-0", "slurmd"),
        ("2", "slurm/worker", "kubernetes", "", "slurm", "worker-0", "slurmd"),
    } == rows


def test_only_slurm_job_inside_a_pod_does_not_hold_all_its_gpus(node):
    node.boards()
    path = f"{IN_POD.strip()}/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"
    node.process(60, path, gpus=[0])
    with node.on_kubelet(pod("slurm", "worker-0", gpu_container("slurmd", *UUIDS[:2]))):
        assert {("0", "7"), ("1", "slurm/worker")} == {row[:2] for row in node.rows()}


def test_unnamed_process_on_a_mapped_gpu_is_the_mapped_jobs(node):
    node.map("0", "mapped")
    node.process(50, IN_POD, gpus=[0])
    assert {("0", "mapped")} == {row[:2] for row in node.rows()}


def test_row_has_the_pod_that_one_of_the_jobs_processes_runs_in(node):
    node.boards()
    node.process(49, environment=rank_of(0), gpus=[0])
    inside = {**POD_ENVIRONMENT, **rank_of(1), "HOSTNAME": "train-b4wmz"}
    node.process(50, IN_POD, inside, gpus=[0])
    with node.on_kubelet(pod("ml", "train-b4wmz", gpu_container("main", UUIDS[0]))):
        assert {("0", "job", "peerwatch", "", "ml", "train-b4wmz", "main")} == node.rows()


def test_process_outside_all_pods_is_not_taken_for_one_of_a_pod(node):
    node.boards()
    node.process(70, environment={"SLURM_JOB_ID": "9"}, gpus=[0])
    with node.on_kubelet(pod("ml", "train-b4wmz", gpu_container("main", UUIDS[0]))):
        rows = node.rows()
    assert {("9", ""), ("ml/train", "train-b4wmz")} == {(row[1], row[5]) for row in rows}


def test_kubelet_that_fails_costs_only_itself(node):
    node.map("0", "job")
    node.jobs["pod_resources_socket"].write_text("no socket")
    assert {("0", "job")} == {row[:2] for row in node.rows()}
    assert "pod_resources_grpc_unavailable" == node.error.error_class
    assert 0 == node.collect()["exporter_job_provider_up", "pod_resources"]


# What names the job of a pod


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("train-master-0", "train"),
        ("train-worker-12", "train"),
        ("train-launcher", "train"),
        ("train-launcher-x2k9d", "train"),
        ("train-node-0-3-b4wmz", "train"),
        ("train-workers-1-3-b4wmz", "train"),
        ("llama-70b-slices-0-1-b4wmz", "llama-70b-slices"),
        ("train-7-b4wmz", "train"),
        ("train-b4wmz", "train"),
        ("train-3", "train"),
        ("train-0-3", "train"),
        ("web-6d4b9c7f5d-x2k9d", "web"),
        ("train-raycluster-x2k9d-small-group-worker-b4wmz", "train"),
        ("train-raycluster-x2k9d-head-b4wmz", "train"),
        ("train", "train"),
        ("train-20260131", "train-20260131"),
        ("worker-0", "worker"),
        ("-", "-"),
    ],
)
def test_pods_name_without_its_endings_is_the_jobs(name, job):
    assert f"ml/{job}" == PodNaming("job").job_id("ml", name)
    assert f"ml/{name}" == PodNaming("pod").job_id("ml", name)


def test_pattern_takes_the_job_out_of_namespace_and_pod():
    pattern = r"[^/]+/(?P<job>.+)-rank\d+"
    assert pattern == check_naming(pattern)
    naming = PodNaming(pattern)
    assert "exp" == naming.job_id("ml", "exp-rank12")
    assert "ml/other" == naming.job_id("ml", "other")
    assert "team/x" == PodNaming("(?P<job>.+/x).*").job_id("team", "x-1")


def test_setting_decides_the_job_id(node):
    node.boards()
    node.jobs["kubernetes_job_id"] = "pod"
    with node.on_kubelet(pod("ml", "train-worker-3", gpu_container("pytorch", UUIDS[0]))):
        assert {"ml/train-worker-3"} == {row[1] for row in node.rows()}


@pytest.mark.parametrize(
    ("setting", "mistake"),
    [
        ("jobs", "no group"),
        ("(?P<job>.+", "nor a regular expression"),
        ("(?P<job>(?:a+)+)x", "must not repeat a group"),
        ("(?P<job>a|b){2,}", "must not repeat a group"),
        (r"(?P<job>.)\1", "neither references"),
        ("(?P<job>.)(?P=job)", "neither references"),
        ("(?!x)(?P<job>.+)", "nor look-around"),
        (".*.*.*.*(?P<job>x)", "has 4 repeats"),
        ("(?P<job>x)" + "a?" * 30, "has 31 groups and optional parts"),
        ("(?P<job>x)" + "a" * 300, "has 310 characters"),
    ],
)
def test_pattern_that_cannot_work_or_may_never_end_is_refused(setting, mistake):
    with pytest.raises(ValueError, match=re.escape(mistake)):
        check_naming(setting)


@pytest.mark.parametrize(
    "pattern", [r"(?P<job>.+?)-\d{1,3}(?:-[a-z0-9]{5})?", r"\(+(?P<job>[*+]+)"]
)
def test_ordinary_pattern_is_allowed(pattern):
    assert pattern == check_naming(pattern)
