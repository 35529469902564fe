"""One detector, measured from within: started by ``bench.detector``."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from bench.detector import Cost, config_of
from bench.processes import usage
from peerwatch_common.memory import search_rarely
from peerwatch_detector.bench.command import resident_mebibytes
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.service import prepare
from peerwatch_detector.service.detector import Detector


def main() -> None:
    """Discover, read, evaluate, publish: once all, then cycle by cycle."""
    method, nodes, url, *numbers, began = sys.argv[1:]
    moment, every, cycles, server = map(int, numbers)
    config = config_of(method, url)
    now = [float(moment)]
    with PrometheusReader(config.prometheus) as reader:
        detector = Detector(config, reader, configured_bundle(config)[0], clock=lambda: now[0])
        ready, idle = time.time() - float(began), resident_mebibytes()
        # As the service does once it knows of a job.
        wall = time.perf_counter()
        prepare.prepare()
        search_rarely()
        loading = time.perf_counter() - wall
        wall, own = time.perf_counter(), time.process_time()
        detector.cycle()
        cold, cold_cpu = time.perf_counter() - wall, time.process_time() - own
        spent = []
        for _ in range(cycles):
            now[0] += every
            before, own = usage(server), time.process_time()
            detector.cycle()
            spent.append((time.process_time() - own, usage(server).cpu_since(before)))
        (detection,) = detector.snapshot.detections
        if len(detection.job.nodes) != int(nodes) or min(detection.coverage.values()) < 0.9:
            raise RuntimeError(f"Evaluated {len(detection.job.nodes)} nodes: {detection.coverage}.")
    cycle, of_server = np.median(spent, axis=0)
    found, held = len(detection.findings), resident_mebibytes()
    cost = Cost(
        method, int(nodes), idle, ready, loading, cold, cold_cpu, cycle, of_server, held, found
    )
    print(json.dumps({name: getattr(cost, name) for name in cost.__slots__}))


if __name__ == "__main__":
    main()
