"""Who of a job's nodes reaches whom: loss and round trips of pings, by source and destination."""

from __future__ import annotations

from links import column_to, series_to
from parts import GREEN, RED, YELLOW, Panel, graph, matrix, thresholds
from promql import MEMBERSHIP, busiest, highest, of_nodes

# All pairs of some 25 nodes that ping 8 others each; of more the worst.
_SHOWN = 200
_SMALL, _LARGE = 'size="small"', 'size=~"large|full"'
_UDP = 'protocol="udp", size="small"'
_OFF = "No pings: they are off unless pings.enabled is set."
# From 1 % on the detector calls a pair bad, and from three times the median on late.
_OF_LOSS = ((None, GREEN), (0.001, YELLOW), (0.01, RED))
_OF_TIME = ((None, GREEN), (2, YELLOW), (3, RED))


def panels(job: str) -> list[Panel]:
    """Return the matrices of pairs, and the worst pairs over time.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    return [
        _loss(
            "Small pings lost",
            "Share of the pings of 64 bytes and of the TCP connections that got lost in the time "
            "range. A red row is a node that sends badly, a red column one that receives badly, "
            f"both a bad node; a single red cell is a path. The {_SHOWN} worst pairs.",
            _named(_ratio(_SMALL), job),
        ),
        _loss(
            "Large pings lost",
            "The same of pings of about 1,400 bytes and of those as large as the MTU allows: what "
            "is red here alone is an MTU, a bad lane or a full buffer. The "
            f"{_SHOWN} worst pairs.",
            _named(_ratio(_LARGE), job),
        ),
        _matrix(
            "Round trips against the median",
            "Mean round trip of small UDP pings in the time range, in multiples of the median of "
            f"all pairs of the job. The {_SHOWN} slowest pairs.",
            "short",
            f"{_named(_seconds(), job)} / scalar(quantile(0.5, {_named(_seconds(), job)}))",
        )
        .decimals(1)
        .thresholds(thresholds(*_OF_TIME)),
        _over_time(
            "Pings lost by pair",
            "Of pings of all kinds. The 20 pairs that lost most over the time range.",
            "percentunit",
            _with_names(of_nodes(busiest(_lost_rates(), members=job), job)),
        ),
        _over_time(
            "Round trips that 99 % of the pings kept to",
            "Of the last 200 small UDP pings of a pair. The 20 highest of the time range.",
            "s",
            _with_names(of_nodes(f"({_slowest()})", job)),
        ),
    ]


def _loss(title: str, description: str, expr: str) -> Panel:
    return (
        _matrix(title, description, "percentunit", expr)
        .decimals(1)
        .thresholds(thresholds(*_OF_LOSS))
    )


def _matrix(title: str, description: str, unit: str, expr: str) -> Panel:
    return (
        matrix(title, description, unit, ("node", "to"), f"topk({_SHOWN}, {expr})")
        .no_value(_OFF)
        .override_by_name("From", column_to("node", node="From"))
    )


def _over_time(title: str, description: str, unit: str, expr: str) -> Panel:
    return (
        graph(title, description, unit, (expr, "{{node}} to {{to}}"))
        .no_value(_OFF)
        .data_links(series_to("node", "node"))
    )


def _pairs(counter: str, matchers: str) -> str:
    """Return by how much a counter grew in the time range, by source and destination."""
    return f"sum by (cluster, node, peer) (increase({counter}{{{matchers}}}[$__range]))"


def _ratio(matchers: str) -> str:
    sent = f"({_pairs('ping_sent_total', matchers)} > 0)"
    return f"{_pairs('ping_lost_total', matchers)} / {sent}"


def _seconds() -> str:
    answered = f"{_pairs('ping_sent_total', _UDP)} - {_pairs('ping_lost_total', _UDP)}"
    return f"{_pairs('ping_round_trip_seconds_total', _UDP)} / ({answered} > 0)"


def _lost_rates() -> str:
    lost, sent = (
        f"sum by (cluster, node, peer) (rate({counter}[$__rate_interval]))"
        for counter in ("ping_lost_total", "ping_sent_total")
    )
    return f"{lost} / ({sent} > 0)"


def _slowest() -> str:
    newest = f'ping_recent_round_trip_seconds{{{_UDP}, statistic="p99"}}'
    return highest(newest, "cluster, node, peer")


def _named(pairs: str, job: str) -> str:
    """Return pairs by the names of both nodes; both are the job's."""
    members = f"last_over_time({MEMBERSHIP}{{{job}}}[$__range])"
    to = f'group by (cluster, to) (label_join({members}, "to", "", "node"))'
    named = _with_names(f"({pairs} and on (cluster, node) {members})")
    return f"max by (node, to) ({named} and on (cluster, to) {to})"


def _with_names(pairs: str) -> str:
    """Return pairs with the node that has the peer's address, also of one that is gone."""
    seen = "last_over_time(ping_address_info[$__range] @ end())"
    named = f'label_join(label_join({seen}, "to", "", "node"), "peer", "", "address")'
    single = f"topk by (cluster, peer) (1, group by (cluster, peer, to) ({named}))"
    return f"{pairs} * on (cluster, peer) group_left (to) {single}"
