"""Training jobs: each provider alone, and what becomes of them together."""

from __future__ import annotations

import pytest

from hardware_cases import only
from jobs_node import (
    POD_ENVIRONMENT,
    UUIDS,
    Node,
    rank_of,
)
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.settings.config import (
    ScopeConfig,
)
from peerwatch_exporter.sources.host.process_files import read_file
from peerwatch_exporter.sources.host.processes import ProcessTable


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_idle_node_has_no_job_and_says_which_providers_it_asked(node):
    samples = node.collect()
    assert {("environment",): 1, ("heartbeat",): 1} == only(samples, "exporter_job_provider_up")
    assert {"exporter_job_provider_up"} == {key[0] for key in samples}


def test_missing_heartbeat_directory_is_said_and_the_environment_still_counts(node):
    node.process(11, environment=rank_of(0))
    config = node.config()
    (node.root / "heartbeats").rmdir()
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
