"""What is asked of Prometheus to find the root of a job's failure: once, when somebody wants it.

All are instant queries about the job's nodes, of the last two hours at most. While a job is healthy
only ``HAS_EVIDENCE`` is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from peerwatch_detector.diagnosis.verdict import CLASS_NAMES

# Twice the longest time-out of a collective in use (30 minutes), and Meta's 10 before it.
WINDOW_SECONDS = 7200
# At ten pings a second to 8 peers some 190 of each size to each: enough to tell 2 % from chance.
PING_SECONDS = 600
_RECENT = f"> time() - {WINDOW_SECONDS}"
_RANKS = "last_over_time(rank_info{ {{- job -}} }[30m])"
_OF_NODES = f"and on (cluster, node) group by (cluster, node) ({_RANKS})"


def _since(labels: str, state: str) -> str:
    """Return the query for when a state began to hold, of the nodes of the job."""
    began = f"min_over_time((timestamp({state}))[{WINDOW_SECONDS}s:30s])"
    return f"min by (cluster, {labels}) ({began} {_OF_NODES})"


def _last(labels: str, metric: str) -> str:
    """Return the query for the last time of an event, of the nodes of the job."""
    return f"max by (cluster, {labels}) ({metric}) {_RECENT} {_OF_NODES}"


def _pings(labels: str, metric: str) -> str:
    """Return the query for how much a counter of pings grew, of the nodes of the job."""
    return f"sum by (cluster, node, {labels}) (increase({metric}[{PING_SECONDS}s])) {_OF_NODES}"


QUERIES: Mapping[str, str] = {
    # When each was last seen.
    "ranks": "max by (node, rank) (max_over_time((timestamp(rank_info{ {{- job -}} }))[30m:30s]))",
    "places": (
        "max by (cluster, node, topology_rack, topology_leaf, topology_pod) "
        f"(last_over_time(node:topology:seconds[30m])) {_OF_NODES}"
    ),
    # Known where exporters send each other pings.
    "addresses": f"max by (cluster, node, address) (ping_address_info) {_OF_NODES}",
    "xid": _last("node, gpu, xid", "gpu_xid_last_timestamp_seconds"),
    "xid_class": _last("node, gpu, xid, class", "gpu_xid_class_last_timestamp_seconds"),
    "sxid": _last(
        "node, switch, sxid, severity", 'nvswitch_sxid_last_timestamp_seconds{severity="fatal"}'
    ),
    "kernel": _last(
        "node, class, signature", 'log_event_last_timestamp_seconds{job_id="",class!="X"}'
    ),
    "log": (
        "max by (node, rank, class, signature) "
        f'(log_event_last_timestamp_seconds{{ {{{{- job -}}}} ,class!="X"}}) {_RECENT}'
    ),
    "first": (
        "min by (node, rank, class, signature) "
        f"(log_first_error_timestamp_seconds{{ {{{{- job -}}}} }}) {_RECENT}"
    ),
    "peers": "max by (node, rank, peer, signature) (log_peer_errors_total{ {{- job -}} }) > 0",
    "gpu_lost": _since("node, gpu", "gpu_lost == 1"),
    "link_down": _since("node, device", "increase(nic_link_downed_total[1m]) > 0"),
    "memory": _since("node", 'increase(host_edac_errors_total{severity="uncorrected"}[1m]) > 0'),
    "boot": _last("node", "host_boot_time_seconds"),
    "check": (
        "max by (cluster, node, check, device) (peerwatch_check_last_run_timestamp_seconds) "
        # In tests of several nodes what has a device is said of others.
        'and on (cluster, node, check, device) (peerwatch_check_status{scope!~"pair|multi"} == 2 '
        'or peerwatch_check_status{scope=~"pair|multi",device=""} == 2) '
        f"and on (cluster, node) group by (cluster, node) ({_RANKS})"
    ),
    # Since when it differs, where it changed under the job; 0 of what was so before.
    "config": (
        "max by (node, key) (peerwatch_job_config_change_timestamp_seconds{ {{- job -}} }) "
        "and on (node, key) (peerwatch_job_config_minority{ {{- job -}} } == 1) "
        "or max by (node, key) (peerwatch_job_config_minority{ {{- job -}} } == 1) * 0"
    ),
    "changed": (
        "max by (node, key) (peerwatch_job_config_change_timestamp_seconds{ {{- job -}} }) "
        f"{_RECENT}"
    ),
    "exits": "max by (node, rank, code, signal, error) (rank_exit_info{ {{- job -}} })",
    "halted": "max by (node, rank) (rank_halted_seconds{ {{- job -}} })",
    "step": "max(last_over_time(rank_last_step_timestamp_seconds{ {{- job -}} }[30m]))",
    "absent": (
        "max by (cluster, node) "
        "(max_over_time((timestamp(rank_info{ {{- job -}} }))[30m:15s])) "
        "unless on (cluster, node) group by (cluster, node) (exporter_build_info)"
    ),
    "finding": (
        "min by (node, gpu, metric) "
        '(peerwatch_finding_start_timestamp_seconds{ {{- job -}} ,method!="evidence"})'
    ),
    # Why, and how sure: a sentence of each of them.
    "finding_text": (
        "group by (node, gpu, metric, summary) "
        '(peerwatch_finding_info{ {{- job -}} ,method!="evidence"})'
    ),
    "verdict": (
        "max by (node, rank, class, confidence) "
        # What the root says itself is no evidence of it, and lines are evidence themselves.
        '(timestamp(peerwatch_diagnosis{ {{- job -}} ,node!="",'
        f'class=~"{"|".join(CLASS_NAMES)}",class!~"traffic_.+|fatal_line"}}))'
    ),
    # From when on it stands, of late: what was regained before then is another matter.
    "traffic": (
        "min by (node, class) (min_over_time((timestamp("
        'peerwatch_diagnosis{ {{- job -}} ,class=~"traffic_.+"}))[900s:15s]))'
    ),
    "named": (
        "min by (node, metric) "
        '(peerwatch_finding_start_timestamp_seconds{ {{- job -}} ,method="evidence"})'
    ),
    # Logs that are there and cannot be read.
    "unread": (
        "count by (reason) (max by (cluster, node, reason) "
        '(log_unread_outputs{reason=~"permission_denied|unreadable|hung|too_many"}) > 0 '
        f"{_OF_NODES})"
    ),
    "pings_sent": _pings("peer, protocol, size", "ping_sent_total"),
    "pings_lost": _pings("peer, protocol, size, direction", "ping_lost_total"),
    "pings_seconds": _pings("peer, protocol, size", "ping_round_trip_seconds_total"),
    # Of all nodes: peers may be outside the job, and those that are gone were seen before.
    "ping_addresses": (
        f"max by (cluster, node, address) (last_over_time(ping_address_info[{WINDOW_SECONDS}s])) "
        f"and on (cluster) group by (cluster) ({_RANKS})"
    ),
}

# Whether a job that stands has anything to say about why: the only query about a job of which
# nothing else is known to be wrong.
HAS_EVIDENCE = (
    "time() - max(last_over_time(rank_last_step_timestamp_seconds{ {{- job -}} }[30m])) > 60 "
    "and on () ("
    f'max(log_event_last_timestamp_seconds{{ {{{{- job -}}}} ,class!="X"}}) {_RECENT} '
    f'or max(gpu_xid_class_last_timestamp_seconds{{class="hardware"}} {_OF_NODES}) {_RECENT} '
    f"or max(gpu_lost {_OF_NODES}) == 1 "
    'or count(rank_exit_info{ {{- job -}} ,code!="0"}) > 0)'
)
