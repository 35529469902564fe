"""Every metric the detector publishes, declared once.

The label sets are a contract: rules and dashboards join on them.
"""

from __future__ import annotations

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_detector.service.configuration_specs import CONFIGURATION_SPECS
from peerwatch_detector.service.diagnosis_specs import DIAGNOSIS_SPECS
from peerwatch_detector.service.reading_specs import READING_SPECS
from peerwatch_detector.service.traffic_specs import TRAFFIC_SPECS

SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "peerwatch_fault_score",
        "gauge",
        "ratio",
        ("job_id", "node"),
        "Evidence against this node, 0 to 1; 1 while a finding is active.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_normal_score",
        "gauge",
        "1",
        ("job_id", "node", "metric"),
        "Standardised dissimilarity of the node in this metric (Minder's normal score): "
        "higher is less like its peers. Method peerwatch measures it against 256 others at most.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_continuity_seconds",
        "gauge",
        "seconds",
        ("job_id", "node", "metric"),
        "How long the node has been the candidate in this metric without a break.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_zscore",
        "gauge",
        "1",
        ("job_id", "node", "metric"),
        "Distance of the node's value from the job's mean in standard deviations (Aegis), signed.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_finding",
        "gauge",
        "1",
        ("job_id", "node", "gpu", "metric", "method", "severity"),
        "1 while a finding is active: this node is flagged as faulty, by this metric and method.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_finding_start_timestamp_seconds",
        "gauge",
        "seconds",
        ("job_id", "node", "gpu", "metric", "method", "severity"),
        "When the node's deviation began (Unix time), for every active finding.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_finding_info",
        "gauge",
        "1",
        ("job_id", "node", "gpu", "metric", "method", "family", "summary"),
        "Always 1, for every active finding: its fault family, and why the node was flagged, in "
        "a sentence of at most 200 characters for a pager. Constant while the finding is "
        "active.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_finding_picture_info",
        "gauge",
        "1",
        ("job_id", "node", "gpu", "metric", "method", "url"),
        "Always 1, for every active finding that can be drawn, where web.pictures is set up: the "
        "address of its picture, signed, which opens without a password until it expires.",
        "detection",
        not_drawn="an address; alerts PeerwatchFaultyNode and PeerwatchSuspectNode carry it",
    ),
    *DIAGNOSIS_SPECS,
    *CONFIGURATION_SPECS,
    *TRAFFIC_SPECS,
    MetricSpec(
        "peerwatch_job_progress_ratio",
        "gauge",
        "ratio",
        ("job_id",),
        "The job's step rate as a share of its own usual one: 1 is as usual, 0.5 half as fast. "
        "Pauses of ordinary length count in neither. Absent while it is not known.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_job_usual_step_rate",
        "gauge",
        "1/second",
        ("job_id", "metric"),
        "The job's usual step rate over the last hour, in what the metric counts per second; after "
        "a restart the detector goes on from here.",
        "detection",
        not_drawn="the present step rate is drawn as a share of it",
    ),
    MetricSpec(
        "peerwatch_job_nodes",
        "gauge",
        "1",
        ("job_id",),
        "Nodes of the training job that the detector compares.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_job_comparable",
        "gauge",
        "1",
        ("job_id",),
        "1 if the job's nodes can be compared in every metric now; 0 if there are too few of "
        "them, or if too many deviate at once in some metric, which then flags nobody.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_job_not_compared_info",
        "gauge",
        "1",
        ("job_id", "reason"),
        "1 while the job's nodes are not compared, and why: too few of them (such as `2 nodes, "
        "needs 3`), or too many that deviate at once. Without a finding such a job is not healthy, "
        "but unknown.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_cycle_duration_seconds",
        "gauge",
        "seconds",
        ("stage",),
        "Duration of each stage in the last cycle: discover (all jobs of the server), read and "
        "detect (sums over the jobs; several are read at a time), publish.",
        "service",
    ),
    MetricSpec(
        "peerwatch_cycle_lateness_seconds",
        "gauge",
        "seconds",
        ("job_id",),
        "Time from when the job was due to the end of its last turn, evaluated or failed; or "
        "how long it is overdue, if that is more.",
        "service",
    ),
    MetricSpec(
        "peerwatch_cycles_skipped_total",
        "counter",
        "1",
        (),
        "Cycles of jobs that were skipped because the previous one had not ended.",
        "service",
        not_drawn="lateness says the same, by job",
    ),
    MetricSpec(
        "peerwatch_jobs_waiting",
        "gauge",
        "1",
        (),
        "Jobs that are due and wait for their turn.",
        "service",
    ),
    MetricSpec(
        "peerwatch_jobs_owned",
        "gauge",
        "1",
        (),
        "Jobs that this detector evaluates as their owner; jobs that it evaluates only until "
        "the new owner does are not counted.",
        "service",
    ),
    MetricSpec(
        "peerwatch_job_owner",
        "gauge",
        "1",
        ("group", "job_id", "member"),
        "Which detector publishes the job's detections: 1 as its owner, 0 until the new owner "
        "does.",
        "service",
        not_drawn="how detectors hand jobs over; their jobs are drawn",
    ),
    MetricSpec(
        "peerwatch_detector_member",
        "gauge",
        "1",
        ("group", "member"),
        "This detector is running: 1 if it shares the jobs with the other members of its group, "
        "0 if it evaluates all of them.",
        "service",
    ),
    MetricSpec(
        "peerwatch_cycle_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        ("job_id",),
        "When the job was last read and evaluated without an error (Unix time).",
        "service",
    ),
    MetricSpec(
        "peerwatch_discovery_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        (),
        "When the list of training jobs was last read from Prometheus (Unix time).",
        "service",
    ),
    *READING_SPECS,
    MetricSpec(
        "peerwatch_data_coverage_ratio",
        "gauge",
        "ratio",
        ("job_id", "metric"),
        "Share of the job's nodes that delivered fresh samples of this metric in the last cycle.",
        "detection",
    ),
    MetricSpec(
        "peerwatch_model_info",
        "gauge",
        "1",
        ("metric", "model", "fingerprint"),
        "The model that embeds this metric: lstm_vae, or identity if none was trained.",
        "models",
    ),
    MetricSpec(
        "peerwatch_config_last_reload_successful",
        "gauge",
        "1",
        (),
        "0 if the settings, as they stood at the last SIGHUP, had mistakes: those before are in "
        "force.",
        "SIGHUP",
    ),
    MetricSpec(
        "peerwatch_config_last_reload_success_timestamp_seconds",
        "gauge",
        "seconds",
        (),
        "When the settings were last taken over (Unix time): at the start, or at a SIGHUP.",
        "SIGHUP",
        not_drawn="the log and peerwatch_config_last_reload_successful say more",
    ),
    MetricSpec(
        "peerwatch_config_reloads_total",
        "counter",
        "1",
        ("result",),
        "How often the settings were read again, by result success or failure.",
        "SIGHUP",
        not_drawn="there are few detectors; the log says it",
    ),
    MetricSpec(
        "peerwatch_web_config_reload_failed",
        "gauge",
        "1",
        (),
        "1 while the current file of web.config_file is invalid and the previous version "
        "remains in force.",
        "web",
    ),
    MetricSpec(
        "peerwatch_web_rejected_connections_total",
        "counter",
        "1",
        (),
        "Connections answered 503 because web.max_connections were in use.",
        "web",
        not_drawn="there are few detectors; the log says it",
    ),
    MetricSpec(
        "peerwatch_web_failed_logins_total",
        "counter",
        "1",
        (),
        "Requests refused because user or password were wrong or missing.",
        "web",
        not_drawn="there are few detectors; the log says it",
    ),
    MetricSpec(
        "peerwatch_web_shortened_labels_total",
        "counter",
        "1",
        (),
        "Label values of more than 1,024 bytes that were cut, so that the exposition can be "
        "scraped; the log names metric and label. A series that comes back counts again.",
        "web",
        not_drawn="there are few detectors; the log says it",
    ),
    MetricSpec(
        "peerwatch_clock_jumps_total",
        "counter",
        "1",
        ("direction",),
        "Times the clock of the detector's machine was set by 10 s or more while it ran: forward "
        "(which a suspended machine counts as, too) or back.",
        "service",
        not_drawn="there are few detectors; the log says it",
    ),
    MetricSpec(
        "peerwatch_preparing",
        "gauge",
        "1",
        (),
        "1 while the detector's functions are being compiled, as after the first start: jobs are "
        "evaluated by an equal path that is some twenty times slower; 0 otherwise.",
        "service",
    ),
    MetricSpec(
        "peerwatch_build_info",
        "gauge",
        "1",
        ("version",),
        "Version of the running detector.",
        "service",
    ),
)

CATALOG: dict[str, MetricSpec] = {spec.name: spec for spec in SPECS}


def family(name: str) -> Family:
    """Return an empty metric family for a catalogued metric.

    Raises
    ------
    KeyError
        If ``name`` is not in the catalogue: declare it there first.
    """
    return CATALOG[name].family()
