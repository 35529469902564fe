"""What active checks found on this node, from the folder to which ``peerwatch-check`` writes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from peerwatch_common.check_results.metrics import SPECS as RESULTS
from peerwatch_common.check_results.metrics import families
from peerwatch_common.check_results.spool import read_spool
from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_LOG = logging.getLogger(__name__)

SPECS = needing(
    "checks",
    *RESULTS,
    MetricSpec(
        "peerwatch_check_bad_files",
        "gauge",
        "1",
        (),
        "Files of results that are not, or not wholly, what they should be; the others count.",
        "the spool folder of peerwatch-check",
        not_drawn="0, unless something else writes to the folder; the log names the file",
    ),
)


@register(
    "checks",
    "what active checks found (peerwatch-check), each result with its time",
    interval_seconds=10,
    topic="Checks",
    metrics=SPECS,
)
class ChecksCollector:
    """Publishes the newest result of each check and device, however old it is."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._folder = sources.paths.checks
        self._whole_machine = config.scope.kind == "host"
        self._known: tuple[str, ...] = ()

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``peerwatch_check_*``.

        Raises
        ------
        NoData
            If no check has ever run here.
        OSError
            If the folder cannot be read.
        """
        if not self._whole_machine or self._folder is None:
            raise NoData("Checks are of the machine, and this node is not all of it.")
        try:
            found = read_spool(self._folder)
        except FileNotFoundError as error:
            raise NoData(f"No check has run: there is no folder {self._folder}.") from error
        # Their texts say what is wrong; once is enough.
        for problem in set(found.problems).difference(self._known):
            _LOG.warning("bad_check_result problem=%s", problem)
        self._known = found.problems
        yield from families(found.records)
        bad = family("peerwatch_check_bad_files")
        bad.add_metric([], len(found.problems))
        yield bad
