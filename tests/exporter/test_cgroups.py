"""Control groups as Slurm, the kubelet and container runtimes name them, seen in the field."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import FakeClock
from peerwatch_exporter.sources.host.process_files import read_file
from peerwatch_exporter.sources.host.processes import ProcessTable
from peerwatch_exporter.sources.jobs.cgroups import CgroupOwner, CgroupReader, parse_cgroup
from procfs_tree import ProcTree

POD = "0c4e2b9a-58f1-4d5b-9a43-6f0a1c2d3e4f"
FLAT = POD.replace("-", "_")
STATIC = "8f2c7d1e9b3a4c5d6e7f8091a2b3c4d5"
ID = "3baf66ee56a52a8765c3deb2444315411a888fa3e2f8f7ddd75e9ded3c34425e"
OUTER = "88ea268ece65a02d68b169fd74bcbcb427eb7f28900db0e3b906fb2eeb7341df"

SLURM = {
    "v1 task": ("9:memory:/slurm/uid_1000/job_123/step_0/task_0", 1000),
    "v1 batch": ("4:devices:/slurm/uid_1000/job_123/step_batch", 1000),
    "v1 adopted by pam": ("8:cpu,cpuacct:/slurm/uid_1000/job_123/step_extern/task_0", 1000),
    "v1 several slurmd": ("9:memory:/slurm_gpu-07/uid_1000/job_123/step_0/task_0", 1000),
    "v1 in a container": (f"9:memory:/docker/{OUTER}/slurm/uid_1000/job_123/step_0", 1000),
    "v2 task": ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", None),
    "v2 batch": ("0::/system.slice/slurmstepd.scope/job_123/step_batch/user/task_special", None),
    "v2 extern": ("0::/system.slice/slurmstepd.scope/job_123/step_extern/user", None),
    "v2 several slurmd": (
        "0::/system.slice/gpu-07_slurmstepd.scope/job_123/step_batch/user/task_special",
        None,
    ),
    "v2 namespaced": ("0::/../slurmstepd.scope/job_123/step_0/user/task_0", None),
    "v2 in a pod": (
        f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope"
        "/system.slice/slurmstepd.scope/job_123/step_0/user/task_0",
        None,
    ),
}
KUBERNETES = {
    "cgroupfs burstable": f"11:memory:/kubepods/burstable/pod{POD}/{ID}",
    "cgroupfs guaranteed": f"0::/kubepods/pod{POD}/{ID}",
    "cgroupfs crio": f"0::/kubepods/besteffort/pod{POD}/crio-{ID}",
    "systemd containerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice"
        f"/cri-containerd-{ID}.scope"
    ),
    "systemd crio": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{FLAT}.slice"
        f"/crio-{ID}.scope"
    ),
    "systemd crio subgroup": (
        f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/crio-{ID}.scope/container"
    ),
    "systemd docker": f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/docker-{ID}.scope",
    "systemd v1": (
        f"1:name=systemd:/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope"
    ),
    "containerd without its systemd driver": (
        f"9:cpuset:/kubepods-besteffort-pod{FLAT}.slice:cri-containerd:{ID}"
    ),
    "the same below a service": (
        f"11:devices:/system.slice/containerd.service/kubepods-pod{FLAT}.slice:cri-containerd:{ID}"
    ),
    "kind cgroupfs": f"14:name=systemd:/docker/{OUTER}/kubelet/kubepods/burstable/pod{POD}/{ID}",
    "kind systemd": (
        f"0::/system.slice/docker-{OUTER}.scope/kubelet.slice/kubelet-kubepods.slice"
        f"/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{FLAT}.slice"
        f"/cri-containerd-{ID}.scope"
    ),
    "kind seen from inside": (
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{FLAT}.slice"
        f"/cri-containerd-{ID}.scope"
    ),
    "namespaced systemd": (
        f"0::/../../kubepods-besteffort-pod{FLAT}.slice/cri-containerd-{ID}.scope"
    ),
    "namespaced cgroupfs": f"0::/../../pod{POD}/{ID}",
    "namespaced full": (
        f"0::/../../../kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/crio-{ID}.scope"
    ),
    "systemd in the container": (
        f"0::/kubepods/burstable/pod{POD}/{ID}/system.slice/train.service"
    ),
}


@pytest.mark.parametrize(("line", "user_id"), SLURM.values(), ids=SLURM)
def test_slurm_job_is_read_from_its_control_group(line, user_id):
    assert CgroupOwner(slurm_job="123", user_id=user_id) == parse_cgroup(f"{line}\n")


@pytest.mark.parametrize("line", KUBERNETES.values(), ids=KUBERNETES)
def test_pod_and_container_are_read_from_their_control_group(line):
    assert CgroupOwner(pod_uid=POD, container_id=ID) == parse_cgroup(f"{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        f"0::/kubepods/burstable/pod{STATIC}/{ID}",
        f"0::/kubepods.slice/kubepods-burstable-pod{STATIC}.slice/crio-{ID}.scope",
    ],
)
def test_static_pods_uid_is_a_hash(line):
    assert CgroupOwner(pod_uid=STATIC, container_id=ID) == parse_cgroup(line)


def test_pods_own_process_is_in_no_container():
    line = f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/crio-conmon-{ID}.scope"
    assert CgroupOwner(pod_uid=POD) == parse_cgroup(line)


def test_innermost_owner_of_all_controllers_counts():
    lines = [
        "12:pids:/system.slice/slurmd.service",
        "11:cpuset:/slurm/uid_1000/job_7",
        "9:memory:/slurm/uid_1000/job_7/step_0/task_0",
        "8:rdma:/",
        "1:name=systemd:/system.slice/slurmd.service",
        "0::/system.slice/slurmd.service",
    ]
    assert CgroupOwner(slurm_job="7", user_id=1000) == parse_cgroup("\n".join(lines))
    assert CgroupOwner(slurm_job="7", user_id=1000) == parse_cgroup("\n".join(lines[::-1]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-3.scope",
        "0::/system.slice/slurmd.service",
        "0::/system.slice/slurmstepd.scope/system",
        "0::/home/job_12",
        "0::/slurm/uid_1000",
        "0::/slurm/uid_1000/job_bad/step_0",
        f"0::/docker/{ID}",
        f"0::/system.slice/docker-{ID}.scope",
        "0::/kubepods.slice/kubepods-burstable.slice",
        "0::/kubepods/burstable/podinfo",
        "0::/podman.slice",
        "garbage",
    ],
)
def test_other_control_groups_belong_to_nobody(text):
    assert None is parse_cgroup(text)


@given(st.text())
def test_any_text_is_parsed(text):
    parse_cgroup(text)


@given(st.data())
def test_any_mutation_of_a_real_path_is_parsed(data):
    lines = [line for line, _ in SLURM.values()] + list(KUBERNETES.values())
    line = list(data.draw(st.sampled_from(lines)))
    for _ in range(data.draw(st.integers(1, 8))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.sampled_from("/:-_.p0\0é\n"))
    owner = parse_cgroup("".join(line))
    assert owner is None or bool(owner.slurm_job) != bool(owner.pod_uid)


@pytest.fixture
def tree(tmp_path):
    return ProcTree(tmp_path / "proc").machine()


def processes_of(tree, clock):
    return list(ProcessTable(tree.root, monotonic=clock).snapshot().values())


def test_user_of_a_v2_job_is_the_owner_of_the_process(tree):
    tree.process(11)
    tree.write("11/cgroup", "0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0\n")
    clock = FakeClock()
    reader = CgroupReader(tree.root, monotonic=clock)
    assert {11: CgroupOwner("5", os.getuid())} == reader.owners(processes_of(tree, clock))


def test_answer_is_remembered_for_a_minute_and_no_answer_for_ten_seconds(tree):
    clock = FakeClock()
    reads = []

    def read(path):
        reads.append(path)
        return read_file(path)

    tree.process(11)
    tree.process(12)
    tree.write("11/cgroup", SLURM["v1 task"][0])
    tree.write("12/cgroup", "0::/init.scope")
    reader = CgroupReader(tree.root, monotonic=clock, read=read)
    for _ in range(60):
        reader.owners(processes_of(tree, clock))
        clock.now += 1
    assert (1, 6) == tuple(sum(f"/{pid}/" in path for path in reads) for pid in (11, 12))
    tree.write("12/cgroup", SLURM["v1 task"][0])
    assert {11, 12} == set(reader.owners(processes_of(tree, clock)))


def test_other_process_with_the_same_pid_is_read_anew(tree):
    clock = FakeClock()
    reader = CgroupReader(tree.root, monotonic=clock)
    tree.process(11, start=1)
    tree.write("11/cgroup", SLURM["v1 task"][0])
    assert ["123"] == [o.slurm_job for o in reader.owners(processes_of(tree, clock)).values()]
    tree.process(11, start=2)
    tree.write("11/cgroup", "0::/slurm/uid_0/job_9")
    clock.now += 1
    assert ["9"] == [o.slurm_job for o in reader.owners(processes_of(tree, clock)).values()]


def test_process_that_ended_meanwhile_has_no_owner(tree):
    clock = FakeClock()
    tree.process(11)
    listed = processes_of(tree, clock)
    tree.end(11)
    assert {} == CgroupReader(tree.root, monotonic=clock).owners(listed)


def test_refusal_of_all_is_an_error_and_of_one_is_not(tree):
    def refuse(path):
        if "/11/" in path or refuse_all:
            raise PermissionError(13, "Permission denied", path)
        return read_file(path)

    clock = FakeClock()
    for pid in (11, 12):
        tree.process(pid)
        tree.write(f"{pid}/cgroup", SLURM["v1 task"][0])
    refuse_all = False
    reader = CgroupReader(tree.root, monotonic=clock, read=refuse)
    assert {12} == set(reader.owners(processes_of(tree, clock)))
    refuse_all = True
    with pytest.raises(PermissionError):
        CgroupReader(tree.root, monotonic=clock, read=refuse).owners(processes_of(tree, clock))


def test_own_control_group_is_readable():
    clock = FakeClock()
    reader = CgroupReader("/proc", monotonic=clock)
    own = ProcessTable("/proc", monotonic=clock).snapshot()[os.getpid()]
    assert set(reader.owners([own])) <= {os.getpid()}
