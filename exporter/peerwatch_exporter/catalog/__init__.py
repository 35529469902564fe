"""Every metric the exporter writes, declared once.

The specs stand in one module per domain; this module joins them. Documentation, rule lint and
dashboard tests read ``CATALOG``, so a name that is not here cannot be published or asked for.
"""

from __future__ import annotations

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog.ethtool import SPECS as ETHTOOL
from peerwatch_exporter.catalog.fast import SPECS as FAST
from peerwatch_exporter.catalog.gpu import SPECS as GPU
from peerwatch_exporter.catalog.gpu_activity import SPECS as GPU_ACTIVITY
from peerwatch_exporter.catalog.gpu_health import SPECS as GPU_HEALTH
from peerwatch_exporter.catalog.host import SPECS as HOST
from peerwatch_exporter.catalog.job import SPECS as JOB
from peerwatch_exporter.catalog.nic import SPECS as NIC
from peerwatch_exporter.catalog.pcie import SPECS as PCIE
from peerwatch_exporter.catalog.sampler import SPECS as SAMPLER
from peerwatch_exporter.catalog.self_metrics import SPECS as SELF
from peerwatch_exporter.catalog.xid import SPECS as XID

__all__ = ["CATALOG", "DOMAINS", "Family", "MetricSpec", "family"]

DOMAINS: dict[str, tuple[MetricSpec, ...]] = {
    "Host": HOST,
    "Training jobs and ranks": JOB,
    "GPU, NVLink, PCIe": GPU,
    "XID and SXID": XID,
    "GPU activity": GPU_ACTIVITY,
    "GPU health": GPU_HEALTH,
    "NIC and RDMA": NIC,
    "NIC flow control, PHY and PCIe": ETHTOOL,
    "PCIe links and errors": PCIE,
    "The fast page": FAST,
    "Millisecond sampling": SAMPLER,
    "The exporter itself": SELF,
}

CATALOG: dict[str, MetricSpec] = {spec.name: spec for specs in DOMAINS.values() for spec in specs}


def family(name: str) -> Family:
    """Return an empty metric family for a catalogued metric.

    Raises
    ------
    KeyError
        If ``name`` is not in the catalogue: declare it there first.
    """
    return CATALOG[name].family()
