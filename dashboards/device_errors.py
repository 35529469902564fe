"""How many GPUs say themselves that they are broken: XIDs, memory errors, the driver's demands."""

from __future__ import annotations

from parts import RED, YELLOW, Panel, count
from promql import of_nodes


def counts(matchers: str, seen: str, members: str = "") -> list[Panel]:
    """Return the counts for a dashboard's head; none is green.

    Parameters
    ----------
    matchers
        Label matchers of the nodes.
    seen
        Series of their exporters.
    members
        Label matchers of training jobs: only their nodes count.
    """
    which = "cluster, node, gpu"
    xids = (
        f"time() - max by ({which}, xid) (gpu_xid_last_timestamp_seconds{{{matchers}}}) < 3600"
        f' and on (cluster, node, xid) gpu_xid_info{{{matchers}, class="hardware"}}'
    )
    memory = (
        f"max by ({which}) (gpu_ecc_errors_total"
        f'{{{matchers}, severity="uncorrected", scope="volatile"}}) > 0'
    )
    asks = f"max by ({which}) (gpu_recovery_action{{{matchers}}}) > 0"

    def of(expression: str) -> str:
        return f"count({of_nodes(expression, members) if members else expression})"

    return [
        count(
            "Hardware XIDs",
            "GPUs that reported an error of their hardware in the last hour, by code. While it has "
            "not ended, an alert stands.",
            of(xids),
            seen,
            YELLOW,
        ).span(3),
        count(
            "Memory errors (ECC)",
            "GPUs with memory errors that could not be corrected, since the driver was loaded.",
            of(memory),
            seen,
            YELLOW,
        ).span(3),
        count(
            "Recovery actions",
            "GPUs for which the driver asks for a reset, a reboot or a drain now.",
            of(asks),
            seen,
            RED,
        ).span(3),
    ]
