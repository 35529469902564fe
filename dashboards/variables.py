"""The variables at the top of a dashboard, each one narrowed by those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from parts import DATASOURCE
from promql import CLUSTER, JOB, MEMBERSHIP

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder


def datasource() -> Builder[models.VariableModel]:
    """Return the choice of the Prometheus that is asked."""
    return builders.DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster(metric: str) -> Builder[models.VariableModel]:
    """Return the choice of a cluster; All where nothing has the label."""
    return _all(
        _query(
            "cluster",
            "Cluster",
            "Value of the label cluster; All where there is no such label.",
            f"label_values({metric}, cluster)",
        )
    )


def watched_job() -> Builder[models.VariableModel]:
    """Return the choice of one training job that the detector watches."""
    return _query(
        "job_id",
        "Training job",
        "Training jobs the detector watches.",
        f"label_values(peerwatch_job_nodes{{{CLUSTER}}}, job_id)",
    )


def any_job() -> Builder[models.VariableModel]:
    """Return the choice of one training job, or of all nodes, also those without a job."""
    return _all(
        _query(
            "job_id",
            "Training job",
            "Nodes of this training job only; All takes in nodes without one.",
            f"label_values({MEMBERSHIP}{{{CLUSTER}}}, job_id)",
        )
    )


def suspect() -> Builder[models.VariableModel]:
    """Return the choice of a job's node; the worst comes first."""
    return _query(
        "node",
        "Node",
        "The node that is drawn against its peers; the list starts with the highest fault score.",
        f"query_result(sort_desc(max by (node) (peerwatch_fault_score{{{JOB}}})))",
    ).regex('/node="([^"]+)"/')


def node() -> Builder[models.VariableModel]:
    """Return the choice of a node among those of the chosen jobs."""
    return _query(
        "node",
        "Node",
        "The node that is shown.",
        f'label_values({MEMBERSHIP}{{{CLUSTER}, job_id=~"$job_id"}}, node)',
    ).sort(models.VariableSort.NATURAL_ASC)


def _query(name: str, label: str, description: str, query: str) -> builders.QueryVariable:
    """Return a variable filled by a query, again whenever the time range changes."""
    return (
        builders.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(DATASOURCE)
        .query({"qryType": 5, "query": query, "refId": f"variable-{name}"})
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.DISABLED)
        .multi(False)
    )


def _all(variable: builders.QueryVariable) -> builders.QueryVariable:
    every = models.VariableOption(text="All", value="$__all", selected=True)
    return variable.include_all(True).all_value(".*").current(every)
