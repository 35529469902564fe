"""Every metric Peerwatch writes, declared once.

The specs stand in one module per domain; this module joins them. Documentation, rule lint and
dashboard tests read ``CATALOG``, so a name that is not here cannot be published or asked for.
"""

from __future__ import annotations

from peerwatch_exporter.catalog import detector, gpu, host, job, nic, self_metrics
from peerwatch_exporter.catalog.spec import Family, MetricSpec

__all__ = ["CATALOG", "Family", "MetricSpec", "family"]

_DOMAINS = (host, job, gpu, nic, self_metrics, detector)

CATALOG: dict[str, MetricSpec] = {spec.name: spec for domain in _DOMAINS for spec in domain.SPECS}


def family(name: str) -> Family:
    """Return an empty metric family for a catalogued metric.

    Raises
    ------
    KeyError
        If ``name`` is not in the catalogue: declare it there first.
    """
    return CATALOG[name].family()
