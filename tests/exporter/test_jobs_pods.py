"""Jobs in pods: which GPUs they hold, and what they are called."""

from __future__ import annotations

import os
import re

import pytest

from fake_kubelet import container, pod
from hardware_cases import collected, only
from jobs_node import (
    CONTAINER_ID,
    IN_POD,
    MIG,
    POD_ENVIRONMENT,
    POD_UID,
    UUIDS,
    Node,
    gpu_container,
    rank_of,
)
from peerwatch_common.pod_names import PodNaming
from peerwatch_common.settings.pod_names import check_naming
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.collectors.ranks import RanksCollector


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


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
        ("train-2ea4852b-head", "train-2ea4852b"),
        ("train-2ea4852b-worker1", "train-2ea4852b"),
        ("train-2ea4852b-worker15", "train-2ea4852b"),
        ("train-x2k9d-small-group-worker-b4wmz", "train"),
        ("train-x2k9d-head", "train"),
        ("train-x2k9d-head-b4wmz", "train"),
        # A name that its user had completed at random.
        ("train-x2k9d-b4wmz-gpu-worker-zz2tl", "train-x2k9d"),
        ("train-x2k9d-worker-0", "train-x2k9d"),
        ("train-x2k9d-master-0", "train-x2k9d"),
        ("cluster-small-group-worker-b4wmz", "cluster-small-group"),
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
