"""The command bench: what it measures, and that its sums are those of its parts."""

from __future__ import annotations

import json
import time

import pytest

from peerwatch_exporter.__main__ import main
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import Registration
from peerwatch_exporter.process.assembly import Parts
from peerwatch_exporter.process.bench import BenchResult, Cost, measure, table
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths


class Busy:
    """Spends 20 ms of CPU."""

    def __init__(self, config, sources):
        pass

    def collect(self):
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        item = family("host_cpus")
        item.add_metric((), 2)
        return [item]


class Waiting(Busy):
    """Waits 20 ms and spends nothing; then fails."""

    def collect(self):
        time.sleep(0.02)
        raise OSError


def test_cpu_and_wall_time_are_told_apart(tmp_path):
    parts = Parts(
        ExporterConfig(deadline_seconds=0.95),
        Sources(Paths(tmp_path, tmp_path, tmp_path)),
        {
            name: Registration(name, "", True, every, "main", factory)
            for name, every, factory in (("busy", 10, Busy), ("waiting", 1, Waiting))
        },
    )
    result = measure(parts, seconds=2)
    busy, waiting = result.collectors
    assert (("busy", 2, 1, 0), ("waiting", 2, 0, 2)) == (
        (busy.name, busy.runs, busy.series, busy.errors),
        (waiting.name, waiting.runs, waiting.series, waiting.errors),
    )
    assert busy.cpu >= 20
    assert busy.cpu_per_second == busy.cpu / 10
    assert waiting.wall_median >= 20 > waiting.cpu
    assert ["snapshot", "/metrics", "gzip of /metrics", "/metrics/fast"] == [
        cost.name for cost in result.endpoints
    ]
    assert 0 < result.exposition_bytes["gzip of /metrics"] < result.exposition_bytes["/metrics"]
    assert result.resident_bytes["main"] > 2**20


def test_table_adds_up_and_shows_the_dearest_first():
    costs = [
        Cost("cheap", "main", 10, 3, 5.0, 1.0, 2.0, 7),
        Cost("dear", "driver", 1, 3, 2.0, 1, 2, 1),
    ]
    endpoints = [Cost("/metrics", "main", 1.0, 3, 1.0, 1.0, 1.0)]
    result = BenchResult(3, costs, endpoints, {"/metrics": 1234}, {"main": 2**20, "driver": 2**21})
    text = table(result)
    assert text.index("dear") < text.index("cheap") < text.index("/metrics")
    for word in ("3.50 ms of CPU per second", "1,234 bytes", "8 series", "3.0 MiB in all"):
        assert word in text
    header, dear, cheap, *_ = text.splitlines()
    assert len(header) == len(dear) == len(cheap)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_command_measures_this_node(flags, capsys):
    assert 0 == main(["bench", "--seconds", "1", "--log-level", "error", *flags])
    text = capsys.readouterr().out
    if flags:
        found = json.loads(text)
        assert {"cpu", "gpu"} <= {cost["name"] for cost in found["collectors"]}
        assert found["cpu_milliseconds_per_second"] > 0
    else:
        assert {"cpu", "gpu", "snapshot"} <= {line.split()[0] for line in text.splitlines() if line}
