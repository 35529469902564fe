"""Which training jobs run on the node, and how their ranks here are doing."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_RANK = ("job_id", "rank")
_TREE = "summed over the processes of the rank"

_PROVIDERS = (
    "jobs.mapping_directory; kubelet pod-resources; NVML compute processes and "
    "/proc/<pid>/cgroup; environment of rank processes"
)

_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "host_job_info",
        "gauge",
        "1",
        ("job_id", "scheduler"),
        "1 for each training job that runs on this node; joins the job to the node's series. "
        "Scheduler is who named it: mapping, slurm, kubernetes, torchelastic or peerwatch.",
        f"{_PROVIDERS}; heartbeat files",
    ),
    MetricSpec(
        "gpu_job_info",
        "gauge",
        "1",
        (
            "gpu",
            "uuid",
            "job_id",
            "scheduler",
            "user",
            "job_namespace",
            "job_pod",
            "job_container",
        ),
        "1 for each training job that holds this GPU, once per GPU and job: join it to GPU series "
        "by gpu. What is not known, or not the same for all of the job on this GPU, is empty. A "
        "MIG slice given to a pod has its own uuid and no gpu; user is a number where no name is "
        "known.",
        _PROVIDERS,
    ),
    MetricSpec(
        "gpu_jobs",
        "gauge",
        "1",
        ("gpu",),
        "Training jobs that hold this GPU: more than 1 means that it is shared, 0 that it is "
        "free. Absent where nobody knows.",
        _PROVIDERS,
    ),
    MetricSpec(
        "rank_info",
        "gauge",
        "1",
        ("job_id", "rank", "local_rank", "world_size", "pid"),
        "1 for each rank of a training job on this node; pid is its main process.",
        "environment of rank processes; heartbeat files",
    ),
    MetricSpec(
        "rank_heartbeat_timestamp_seconds",
        "gauge",
        "seconds",
        _RANK,
        "When the rank last gave a sign of life (Unix time).",
        "heartbeat file: time",
        hardware="heartbeat",
    ),
    MetricSpec(
        "rank_last_step_timestamp_seconds",
        "gauge",
        "seconds",
        _RANK,
        "When the rank last finished an optimiser step (Unix time).",
        "heartbeat file: last_step_time",
        hardware="heartbeat",
    ),
    MetricSpec(
        "rank_steps_total",
        "counter",
        "1",
        _RANK,
        "Optimiser steps the rank has finished; falls when a job resumes from a checkpoint.",
        "heartbeat file: step",
        hardware="heartbeat",
    ),
    MetricSpec(
        "rank_process_state",
        "gauge",
        "1",
        ("job_id", "rank", "state"),
        "1 for the state of the rank's main process, 0 for the others: running, sleeping, "
        "disk_sleep, stopped, zombie, exited (a heartbeat file is left but no process).",
        "/proc/<pid>/stat state",
    ),
    MetricSpec(
        "rank_cpu_seconds_total",
        "counter",
        "seconds",
        ("job_id", "rank", "mode"),
        f"CPU time of the rank in user and system mode, {_TREE}.",
        "/proc/<pid>/stat utime, stime, cutime, cstime",
    ),
    MetricSpec(
        "rank_memory_resident_bytes",
        "gauge",
        "bytes",
        _RANK,
        f"Resident memory of the rank, {_TREE}; shared pages count for each of them.",
        "/proc/<pid>/status VmRSS",
    ),
    MetricSpec(
        "rank_read_bytes_total",
        "counter",
        "bytes",
        _RANK,
        f"Bytes the rank had read from storage, {_TREE}.",
        "/proc/<pid>/io read_bytes",
    ),
    MetricSpec(
        "rank_written_bytes_total",
        "counter",
        "bytes",
        _RANK,
        f"Bytes the rank had written to storage, {_TREE}.",
        "/proc/<pid>/io write_bytes",
    ),
    MetricSpec(
        "rank_context_switches_total",
        "counter",
        "1",
        ("job_id", "rank", "kind"),
        "Context switches of the main threads of the rank's processes: voluntary (waited) or "
        "involuntary (pushed off the CPU).",
        "/proc/<pid>/status voluntary_ctxt_switches, nonvoluntary_ctxt_switches",
    ),
    MetricSpec(
        "rank_run_delay_seconds_total",
        "counter",
        "seconds",
        _RANK,
        "Time the main threads of the rank's processes were ready to run but waited for a CPU.",
        "/proc/<pid>/schedstat, second field",
    ),
    MetricSpec(
        "rank_threads",
        "gauge",
        "1",
        _RANK,
        f"Threads of the rank, {_TREE}.",
        "/proc/<pid>/stat num_threads",
    ),
    MetricSpec(
        "rank_processes",
        "gauge",
        "1",
        _RANK,
        "Processes of the rank: the main process and its descendants.",
        "/proc/<pid>/stat ppid",
    ),
)

_SELF: tuple[MetricSpec, ...] = (
    MetricSpec(
        "exporter_job_provider_up",
        "gauge",
        "1",
        ("provider",),
        "1 if this source of job ids could be read, 0 if it failed, wholly or in part; absent "
        "where the node has none such. Providers: mapping, pod_resources, cgroup, environment, "
        "heartbeat.",
        "jobs collector",
    ),
    MetricSpec(
        "exporter_job_mapping_errors_total",
        "counter",
        "1",
        ("reason",),
        "Files of the mapping directory that could not be used, or not as a whole, counted at "
        "every reading; the log names each once. Reasons: name, not_a_file, unreadable, too_large, "
        "binary, job_id, too_many_jobs, too_many_files.",
        "jobs.mapping_directory",
    ),
)

SPECS: tuple[MetricSpec, ...] = (*needing("training job", _SPECS), *_SELF)
