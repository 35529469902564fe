"""Whatever files, environments and providers say, jobs come of it and no exception."""

from __future__ import annotations

import os
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import FakeClock
from peerwatch_common.pod_names import PodNaming
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.settings.config import ExporterConfig, JobsConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.jobs.claims import Boards, Claim, ClaimedGpu, Pod
from peerwatch_exporter.sources.jobs.environment import job_facts, possible_gpus
from peerwatch_exporter.sources.jobs.mapping import LONGEST_JOB_ID, REASONS, read_mapping
from peerwatch_exporter.sources.jobs.merge import MOST_JOBS, MOST_ROWS, merge
from peerwatch_exporter.sources.jobs.ranks import rank_identity

BOARDS = Boards([GpuIdentity(index, f"GPU-{index}0000000-1111") for index in range(4)])
FILE_NAMES = st.one_of(
    st.sampled_from(["0", "1", "0.1", "node", "999", "1000"]),
    st.text("0123.node~ é\n", min_size=1, max_size=20).filter(lambda n: n not in (".", "..")),
)


@given(st.dictionaries(FILE_NAMES, st.one_of(st.binary(max_size=200), st.text(max_size=200))))
def test_any_mapping_directory_is_read(tmp_path_factory, files):
    directory = tmp_path_factory.mktemp("mapping")
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode(errors="replace")
        (directory / name).write_bytes(data)
    (directory / "2").write_text("good\n")
    mapping = read_mapping(directory)
    assert "good" in mapping.gpus[2]
    assert {problem.reason for problem in mapping.problems} <= set(REASONS)
    assert all(len(job_id) <= LONGEST_JOB_ID and job_id.isprintable() for job_id in mapping.job_ids)
    clock = FakeClock()
    sources = Sources(Paths(directory, directory, directory), clock=clock, monotonic=clock)
    config = ExporterConfig(
        jobs=JobsConfig(mapping_directory=directory, pod_resources_socket=None, environment=False)
    )
    published = {family.name for family in JobsCollector(config, sources).collect()}
    assert {"gpu_job_info", "host_job_info", "exporter_job_mapping_errors"} <= published


def test_name_that_is_no_unicode_is_passed_over(tmp_path):
    (tmp_path / "0").write_text("good")
    (tmp_path / os.fsdecode(b"\xff\xfe")).write_text("bad")
    mapping = read_mapping(tmp_path)
    assert ({0: ("good",)}, ["name"]) == (mapping.gpus, [p.reason for p in mapping.problems])


VARIABLES = st.sampled_from(
    (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "PEERWATCH_JOB_ID",
        "SLURM_JOB_ID",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_JOB_USER",
        "SLURM_JOB_GPUS",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "POD_NAME",
        "POD_NAMESPACE",
        "HOSTNAME",
        "KUBERNETES_SERVICE_HOST",
        "TORCHELASTIC_RUN_ID",
    )
)
VALUES = st.one_of(
    st.text(max_size=30),
    st.text("0123456789,-GPU: ", max_size=40),
    st.sampled_from(["0", "1", "7", "0-999", "GPU-10000000-1111,GPU-20000000-1111", "GPU-1"]),
)


@given(st.dictionaries(VARIABLES, VALUES), st.integers(0, 8))
def test_any_environment_is_understood_or_passed_over(environment, gpu_count):
    facts = job_facts(environment)
    if facts is not None:
        gpus = possible_gpus(facts, BOARDS, gpu_count)
        assert len(gpus) == len(set(gpus)) or len(gpus) <= 64
        assert all(gpu.number is not None for gpu in gpus)


NAMES = st.sampled_from(["", "7", "8", "llm", "train-worker-0"])
GPUS = st.lists(
    st.one_of(
        st.builds(ClaimedGpu, st.integers(0, 5), st.just("")),
        st.just(ClaimedGpu(None, "MIG-1")),
        st.just(BOARDS.gpu(1)),
    ),
    max_size=3,
).map(tuple)
PODS = st.builds(
    Pod, st.sampled_from(["", "ml"]), st.sampled_from(["train-worker-0", "web"]), NAMES
)
CLAIMS = st.one_of(
    st.builds(
        Claim,
        st.sampled_from(["mapping", "environment", "cgroup", "heartbeat"]),
        job_id=NAMES,
        scheduler=st.sampled_from(["", "slurm", "mapping", "kubernetes"]),
        explicit=st.booleans(),
        user=st.sampled_from(["", "0", "ada"]),
        gpus=GPUS,
        possible_gpus=GPUS,
        pid=st.one_of(st.none(), st.integers(1, 4)),
        pod_uid=st.sampled_from(["", "u1"]),
        pod_hint=st.tuples(NAMES, st.sampled_from(["", "ml"])),
        in_pod=st.one_of(st.none(), st.booleans()),
    ),
    st.builds(Claim, st.just("pod_resources"), gpus=GPUS, pod=PODS, in_pod=st.just(True)),
)


@given(st.lists(CLAIMS, max_size=12))
def test_any_claims_make_jobs_once_each(claims):
    jobs = merge(claims, BOARDS, PodNaming("job"))
    assert len(jobs.schedulers) <= MOST_JOBS
    assert len(jobs.rows) <= MOST_ROWS
    assert all(jobs.schedulers)
    places = [(row.gpu.label or row.gpu.uuid, row.job_id) for row in jobs.rows.values()]
    assert sorted(set(places)) == sorted(places)
    assert all(row.scheduler == jobs.schedulers[row.job_id] for row in jobs.rows.values())
    # Whatever is claimed by name is somebody's job, under that name or under another of its own.
    assert bool(jobs.schedulers) or not any(claim.job_id for claim in claims)


@given(st.text(max_size=40), st.text(max_size=300))
def test_any_pod_has_a_job_id(namespace, pod):
    for setting in ("job", "pod", r"(?P<job>.*)-\d+"):
        naming = PodNaming(setting)
        assert naming.job_id(namespace, pod)
        assert naming.job_id(namespace, pod) == naming.job_id(namespace, pod)


def test_environment_of_anybodys_process_takes_little_memory():
    # The kernel takes 128 KiB for one variable.
    environment = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "PEERWATCH_JOB_ID": "x" * 100_000,
        "CUDA_VISIBLE_DEVICES": ",".join(["0-999"] * 20_000),
    }
    tracemalloc.start()
    try:
        facts = job_facts(environment)
        identity = rank_identity(environment)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tuple(map(str, range(64))) == facts.devices
    assert "x" * 128 == identity.job_id
    assert 2**20 > peak
