"""What checks measured on other nodes of the same hardware: ``peerwatch_check_value``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.check import Usual
from peerwatch_checks.prometheus.client import instant
from peerwatch_common.promql import any_of, in_one, quoted, selected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_checks.prometheus.client import Server

# What nodes achieve hardly changes, but drivers and libraries do. Chosen: in a week most nodes are
# idle, and checked, at least once.
_OLDEST_SECONDS = 7 * 86_400
# The status of a check that did not work, as record.STATUSES counts.
_ERROR = 3
_BY = "check, device, unit"


def read_usual(server: Server, query: str) -> dict[str, dict[str, Usual]]:
    """Return what is usual, by check and device.

    Parameters
    ----------
    server
        Whom to ask.
    query
        What ``usual_query`` returned.

    Raises
    ------
    PrometheusError
        If it gives no answer.
    """
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for sample in instant(server, query):
        check, device, unit, statistic = (
            sample.labels.get(label, "") for label in ("check", "device", "unit", "statistic")
        )
        rows.setdefault((check, device, unit), {})[statistic] = sample.value
    found: dict[str, dict[str, Usual]] = {}
    for (check, device, unit), row in sorted(
        rows.items(), key=lambda each: each[1].get("count", 0)
    ):
        if {"count", "median", "deviation"} <= row.keys():
            # Where versions of a check measure in two units, that of most nodes.
            usual = Usual(int(row["count"]), row["median"], row["deviation"], unit)
            found.setdefault(check, {})[device] = usual
    return found


def usual_query(
    node: str, checks: Iterable[str], hardware: Mapping[str, str], selector: str, job_id: str
) -> str:
    """Return the query for count, median and MAD of what other nodes measured.

    The server computes them, so that the answer is as short for 10,000 nodes as for ten.

    Parameters
    ----------
    node
        This node, which is not its own peer.
    checks
        Names of checks.
    hardware
        This node's models, under ``gpu`` and ``cpu``: those of others are the same.
    selector
        Matchers of labels that select the peers, without braces; empty: all.
    job_id
        The job whose nodes are the peers; empty: all nodes of this hardware.
    """
    which = (any_of("check", checks), f"node!={quoted(node)}")
    models = {f"{name}_model": hardware.get(name, "") for name in ("gpu", "cpu")}
    on = "and on (cluster, node, check, scope, device, severity)"
    status = selected("peerwatch_check_status", selector, *which)
    last_run = selected("peerwatch_check_last_run_timestamp_seconds", selector, *which)
    of_job = ""
    if job_id:
        of_job = f" and on (cluster, node) {selected('host_job_info', selector, job_id=job_id)}"
    values = (
        f"max by (cluster, node, {_BY}) ("
        f"{selected('peerwatch_check_value', selector, *which, **models)} "
        f"{on} {status} != {_ERROR} {on} {last_run} > time() - {_OLDEST_SECONDS}{of_job})"
    )
    median = f"quantile by ({_BY}) (0.5, {values})"
    distance = f"abs({values} - on ({_BY}) group_left () {median})"
    statistics = {
        "count": f"count by ({_BY}) ({values})",
        "median": median,
        "deviation": f"quantile by ({_BY}) (0.5, {distance})",
    }
    return in_one("statistic", statistics)
