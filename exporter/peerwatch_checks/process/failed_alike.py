"""Which checks many nodes fail at once: then no node is drained for them.

It is the last update or the check itself (Aegis takes such an update back). Rules count the nodes
(``cluster:check_failed_nodes:count``); they are asked only where a node would be drained.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_checks.checks.config.peer_config import PeerConfigOptions, server_of
from peerwatch_checks.prometheus.client import PrometheusError, instant
from peerwatch_checks.results.table import drains
from peerwatch_common.promql import any_of, selected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_checks.check import Options
    from peerwatch_common.check_results.record import Record

# Slurm ends a HealthCheckProgram after 60 s, and the run's own limit is 50 s (program.py). Chosen:
# a third of what is left.
_MOST_SECONDS = 3.0


def failed_alike(options: Options, records: Sequence[Record]) -> frozenset[str]:
    """Return the checks for which a node is not to be drained, and say so on standard error.

    None where nobody is asked, or nobody answers: then each node stands for itself.

    Parameters
    ----------
    options
        Those of ``peer_config``: whom to ask, and of which nodes.
    records
        Of the run.
    """
    assert isinstance(options, PeerConfigOptions)
    failed = sorted({each.check for each in records if drains(each)})
    if not options.url or not failed:
        return frozenset()
    server = server_of(options)
    server = replace(server, timeout_seconds=min(server.timeout_seconds, _MOST_SECONDS))
    query = selected("cluster:check_failed_nodes:count", options.selector, any_of("check", failed))
    try:
        found = instant(server, query)
    except PrometheusError as error:
        sys.stderr.write(f"peerwatch-check: not known whether other nodes fail too: {error}\n")
        return frozenset()
    for sample in found:
        sys.stderr.write(
            f"peerwatch-check: {sample.labels.get('check', '')} failed on {sample.value:.0f} nodes "
            "within an hour: the last update, or the check itself. This node is not drained for "
            "it.\n"
        )
    return frozenset(sample.labels.get("check", "") for sample in found) & set(failed)
