"""What the exporter says about itself."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

# How often it is said how long collectors took and when they last succeeded, while all goes on:
# three times for each scrape of 15 s.
TIMES_SECONDS = 5
# How often the exporter's own processes are looked at: the same.
USE_SECONDS = 5

_COLLECTOR = ("collector",)

SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "exporter_build_info",
        "gauge",
        "1",
        ("version",),
        "Version of the running exporter; present whenever the node can be reached.",
        "peerwatch_exporter.__version__",
    ),
    MetricSpec(
        "exporter_collector_success",
        "gauge",
        "1",
        _COLLECTOR,
        "1 if the collector's last run succeeded (also when the node has no such hardware), "
        "0 if it failed or passed its deadline.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_duration_seconds",
        "gauge",
        "seconds",
        _COLLECTOR,
        "Wall time of the collector's last run; of the run under way while it is stuck.",
        "runner",
        every_seconds=TIMES_SECONDS,
    ),
    MetricSpec(
        "exporter_collector_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        _COLLECTOR,
        "When the collector last succeeded (Unix time); absent before the first time.",
        "runner",
        every_seconds=TIMES_SECONDS,
    ),
    MetricSpec(
        "exporter_collector_timeouts_total",
        "counter",
        "1",
        _COLLECTOR,
        "Runs of the collector that passed the deadline and were left out of the exposition.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_stuck_seconds",
        "gauge",
        "seconds",
        ("collector", "gpu"),
        "For how long a run past its deadline has not returned; 0 if none is stuck. gpu is empty "
        "for the collector as a whole, else the index of the GPU whose driver call hangs.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_dropped_series",
        "gauge",
        "1",
        _COLLECTOR,
        "Series left out of the collector's last run because it had more than "
        "collectors.max_series; the last ones go.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_error_info",
        "gauge",
        "1",
        ("collector", "error"),
        "1 while the collector fails, or cannot read a part of its source; error is a short "
        "class such as permission_denied, os_error, series_limit or deadline_exceeded; "
        "source_missing if the exporter was not given it (a device, a socket, the node's files).",
        "runner",
    ),
    MetricSpec(
        "exporter_nvml_restarts_total",
        "counter",
        "1",
        ("reason",),
        "How often a process that calls NVML was ended or ended by itself, by reason: gpu_hung, "
        "library_hung, library_failed, crashed, bad_answer, driver_reloaded or released. A GPU "
        "that hangs its process is read by one of its own until it answers again.",
        "driver processes",
        "NVIDIA driver",
    ),
    MetricSpec(
        "exporter_nvml_unkillable_processes",
        "gauge",
        "1",
        (),
        "Ended processes that are still there because the GPU driver does not let them go. "
        "Nothing but a reset of the GPU or a reboot of the node helps.",
        "driver processes",
        "NVIDIA driver",
    ),
    MetricSpec(
        "exporter_source_supported",
        "gauge",
        "1",
        ("source", "gpu"),
        "1 if the GPU and its driver have a source, 0 if its metrics are missing for that reason: "
        "power_instant, gpm, dcgm, nvlink_bytes, pcie_bytes.",
        "NVML return codes",
        "NVIDIA driver",
    ),
    MetricSpec(
        "exporter_snapshot_timestamp_seconds",
        "gauge",
        "seconds",
        (),
        "When these values were read (Unix time). Older than a few seconds: the "
        "exporter does not get to run. Older than 10 s: the collectors' values are left out.",
        "runner",
    ),
    MetricSpec(
        "exporter_snapshot_missed_total",
        "counter",
        "1",
        (),
        "Seconds without a snapshot because the exporter was busy, stopped or starved of CPU time.",
        "runner",
    ),
    MetricSpec(
        "exporter_cpu_seconds_total",
        "counter",
        "seconds",
        ("process",),
        "CPU time of the exporter's own processes: main, driver (all that call NVML), sampler, "
        "logs and dcgm.",
        "/proc/<pid>/stat utime, stime",
        every_seconds=USE_SECONDS,
    ),
    MetricSpec(
        "exporter_resident_memory_bytes",
        "gauge",
        "bytes",
        ("process",),
        "Resident memory of the exporter's own processes; memory they share counts in each.",
        "/proc/<pid>/stat rss",
        every_seconds=USE_SECONDS,
    ),
    MetricSpec(
        "exporter_config_last_reload_successful",
        "gauge",
        "1",
        (),
        "0 if the settings, as they stood at the last SIGHUP, had mistakes: those before are in "
        "force.",
        "SIGHUP",
    ),
    MetricSpec(
        "exporter_config_last_reload_success_timestamp_seconds",
        "gauge",
        "seconds",
        (),
        "When the settings were last taken over (Unix time): at the start, or at a SIGHUP.",
        "SIGHUP",
        not_drawn="the log and exporter_config_last_reload_successful say more",
    ),
    MetricSpec(
        "exporter_config_reloads_total",
        "counter",
        "1",
        ("result",),
        "How often the settings were read again, by result success or failure.",
        "SIGHUP",
    ),
    MetricSpec(
        "exporter_series",
        "gauge",
        "1",
        (),
        "Series of this exposition.",
        "runner",
    ),
)
