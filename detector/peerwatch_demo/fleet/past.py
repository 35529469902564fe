"""What Prometheus would have stored if it had scraped the fleet before: OpenMetrics with times.

Every sample comes from a visit of the exporter's own code to a simulated node. The series that the
recording rules would have made are made of `/metrics/fast`, whose metrics are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from peerwatch_common.metrics.exposition import number, series_text
from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_demo.fleet.node import FleetNode
from peerwatch_demo.fleet.plan import CLUSTER, PlannedNode
from peerwatch_demo.simulated_node.node_plan import JOB_ID
from peerwatch_detector.config import load_preset
from peerwatch_exporter.snapshot import Snapshot

# What did not change is repeated this often: queries look back 5 minutes, twice this and more.
_REPEAT_SECONDS = 120.0

Labels = tuple[str, ...]

# Recorded as they are, by the metric they are made of.
_AS_THEY_ARE = {
    "fast_job_info": "job_node:membership:info",
    "gpu_memory_used_bytes": "job_gpu:memory_used:bytes",
}


@cache
def recorded_names() -> Mapping[str, str]:
    """Return the names of the recorded series by the exporter's metrics that they equal.

    Both presets of the detector hold the same metrics, read from the rules' series or from the
    fast endpoint; only the used memory is a share on the fast endpoint and bytes in the rules.
    """
    made = {metric.name: metric for metric in load_preset("peerwatch").metrics}
    same = {
        metric.recorded: made[metric.name].recorded
        for metric in load_preset("fast").metrics
        if metric.unit == made[metric.name].unit
    }
    return {**same, **_AS_THEY_ARE}


class Writer:
    """Writes the samples of one node.

    Parameters
    ----------
    planned
        Whose labels they get.
    """

    def __init__(self, planned: PlannedNode) -> None:
        self._planned = planned
        self._target = _pairs(planned.labels)
        self._known: dict[tuple[str, Callable[[MetricSpec, Labels], str]], dict[Labels, str]] = {}
        self._written: dict[str, tuple[float, Family]] = {}

    def samples(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield a line for each series with something to say at the snapshot's time."""
        stamp = f" {snapshot.time:.3f}\n"
        yield f"up{{{self._target}}} 1{stamp}"
        for family in snapshot.families:
            if self._is_due(family, snapshot.time):
                yield from self._lines(family, self._scraped, stamp)
        for family in (*snapshot.fast_history[-1].families, *snapshot.families):
            if family.spec.name in recorded_names():
                yield from self._lines(family, self._recorded, stamp)

    def _is_due(self, family: Family, now: float) -> bool:
        name = family.spec.name
        since, last = self._written.get(name, (float("-inf"), None))
        if last is not None and last.rows == family.rows and now - since < _REPEAT_SECONDS:
            return False
        self._written[name] = now, family
        return True

    def _lines(
        self, family: Family, series: Callable[[MetricSpec, Labels], str], stamp: str
    ) -> Iterator[str]:
        known = self._known.setdefault((family.spec.name, series), {})
        for labels, value in family.rows:
            text = known.get(labels)
            if text is None:
                text = known[labels] = series(family.spec, labels)
            yield f"{text} {number(value)}{stamp}"

    def _scraped(self, spec: MetricSpec, labels: Labels) -> str:
        """Return a series as a scrape stores it: with the target's labels."""
        name, _, own = series_text(spec, labels).partition("{")
        own = own.replace(f'job_id="{JOB_ID}"', f'job_id="{self._planned.job_id}"')
        return f"{name}{{{self._target}{',' + own if own else '}'}"

    def _recorded(self, spec: MetricSpec, labels: Labels) -> str:
        """Return the series that the recording rules make of it."""
        planned = self._planned
        pairs = {"cluster": CLUSTER, "job_id": planned.job_id, "node": planned.name}
        own = dict(zip(spec.labels, labels, strict=True))
        if "gpu" in own:
            pairs["gpu"] = own["gpu"]
        return f"{recorded_names()[spec.name]}{{{_pairs(pairs)}}}"


class Past:
    """Takes nodes through the past, up to the present.

    Parameters
    ----------
    nodes
        The nodes.
    start
        Unix time of the first visit.
    """

    def __init__(self, nodes: Iterable[FleetNode], start: float) -> None:
        self._nodes = [(node, Writer(node.planned)) for node in nodes]
        self._start = start
        self._last: float | None = None

    def until(self, end: Callable[[], float], step: float) -> Iterator[str]:
        """Yield the samples of all visits from where the last call ended.

        Parameters
        ----------
        end
            Returns the Unix time until which the past goes; the present does not stand still.
        step
            Seconds between two visits of a node; more if a visit of all takes over half of it,
            as the past would never reach the present then.
        """
        taken = 0.0
        while (at := self._next(max(step, 2 * taken))) <= (began := end()):
            for node, writer in self._nodes:
                yield "".join(writer.samples(node.visit(at, _REPEAT_SECONDS)))
            self._last, taken = at, end() - began

    def _next(self, step: float) -> float:
        return self._start if self._last is None else self._last + step


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
