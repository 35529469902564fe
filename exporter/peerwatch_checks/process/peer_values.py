"""What is usual on other nodes, asked of Prometheus once in a run, if a check wants to know."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from peerwatch_checks.checks.config.peer_config import PeerConfigOptions, server_of
from peerwatch_checks.prometheus.client import PrometheusError
from peerwatch_checks.prometheus.values_of_nodes import read_usual, usual_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_checks.check import Check, Options, Usual
    from peerwatch_checks.run.attempts import Circumstances


def usual_of(
    options: Options, about: Circumstances, checks: Sequence[Check]
) -> Callable[[str], Mapping[str, Usual]]:
    """Return what gives a check's usual values, by device; none where nobody is asked.

    A server that does not answer costs the comparison, and says so once on standard error.

    Parameters
    ----------
    options
        Those of ``peer_config``: whom to ask, and who the peers are.
    about
        This node.
    checks
        All checks of the run.
    """
    assert isinstance(options, PeerConfigOptions)
    # Only what puts load on a node measures what it achieves; those of several nodes have their
    # peers with them.
    measuring = [check.name for check in checks if check.active and check.scope == "host"]
    if not options.url or not measuring:
        return lambda _check: {}
    known: dict[str, dict[str, Usual]] | None = None

    def usual(check: str) -> Mapping[str, Usual]:
        nonlocal known
        if known is None:
            known = _asked(options, about, measuring)
        return known.get(check, {})

    return usual


def _asked(
    options: PeerConfigOptions, about: Circumstances, measuring: Sequence[str]
) -> dict[str, dict[str, Usual]]:
    query = usual_query(about.node, measuring, about.hardware, options.selector, options.job_id)
    try:
        return read_usual(server_of(options), query)
    except PrometheusError as error:
        text = f"values are not compared with those of other nodes: {error}"
        sys.stderr.write(f"peerwatch-check: {text}\n")
        return {}
