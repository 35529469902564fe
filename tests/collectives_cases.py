"""The collectors of a heartbeat directory, and what they publish."""

from __future__ import annotations

import time

from peerwatch_exporter.collectors.collectives import CollectivesCollector
from peerwatch_exporter.collectors.ranks import RanksCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import (
    CollectivesConfig,
    ExporterConfig,
    HeartbeatConfig,
)
from peerwatch_exporter.sources import real_sources


def collector_of(heartbeats, **collectives):
    config = ExporterConfig(
        heartbeat=HeartbeatConfig(directory=heartbeats),
        collectives=CollectivesConfig(**collectives),
    )
    sources = real_sources(config)
    return CollectivesCollector(config, sources), RanksCollector(config, sources)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def samples_of(collector):
    """Return what is published, and the class of what is missing."""
    samples, error = {}, None
    try:
        for family in collector.collect():
            for sample in family.samples:
                samples[sample.name, *sample.labels.values()] = sample.value
    except PartialData as problem:
        error = problem.__cause__.error_class
    except NoData:
        pass
    return samples, error
