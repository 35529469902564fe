"""Asks Alertmanager what fires and Prometheus what is diagnosed; what fails is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.server import ServerError, get_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.settings.config import ServerConfig

# What to do is a label of the verdict; that it is what the job failed of is one of its sentence.
DIAGNOSES = (
    '(peerwatch_diagnosis{confidence=~"sure|likely"} == 1) '
    "and on (cluster, job_id, node, rank, class) "
    'peerwatch_diagnosis_info{root="1"}'
)


def firing(server: ServerConfig) -> frozenset[str]:
    """Return the fingerprints of the alerts that fire now, neither silenced nor inhibited.

    Raises
    ------
    ServerError
        If Alertmanager could not be asked.
    """
    # What is inhibited has a cause that is answered in its place, or one above all nodes.
    query = {"active": "true", "silenced": "false", "inhibited": "false", "unprocessed": "false"}
    alerts = get_json(server, "/api/v2/alerts", query)
    try:
        return frozenset(str(each["fingerprint"]) for each in alerts)
    except (TypeError, KeyError):
        raise ServerError(f"{server.url}: is no Alertmanager: no list of alerts") from None


def advice(server: ServerConfig) -> Mapping[tuple[str, str, str], frozenset[str]]:
    """Return all that root diagnoses advise, by cluster, job and node.

    Raises
    ------
    ServerError
        If Prometheus could not be asked.
    """
    answer = get_json(server, "/api/v1/query", {"query": DIAGNOSES})
    try:
        found: dict[tuple[str, str, str], set[str]] = {}
        for each in answer["data"]["result"]:
            labels = each["metric"]
            whose = labels.get("cluster", ""), labels.get("job_id", ""), labels.get("node", "")
            # A node that is at fault twice has two roots.
            found.setdefault(whose, set()).add(labels["action"])
        return {whose: frozenset(actions) for whose, actions in found.items()}
    except (TypeError, KeyError, AttributeError):
        raise ServerError(f"{server.url}: is no Prometheus: no result of a query") from None
