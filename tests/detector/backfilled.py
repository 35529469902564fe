"""A real Prometheus that holds given samples of the past."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peerwatch_demo.stack.servers import Stack, find_program, free_ports


@contextmanager
def backfilled(directory: Path, open_metrics: str) -> Iterator[str]:
    """Run a Prometheus on these samples, OpenMetrics text with times, and give its URL."""
    text, data = directory / "samples.om", directory / "data"
    text.write_text(open_metrics)
    subprocess.run(
        [find_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data],
        check=True,
        capture_output=True,
    )
    (directory / "prometheus.yml").write_text("{}\n")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with Stack(directory) as stack:
        stack.start(
            "prometheus",
            [
                find_program("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=50y",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            ready=f"{url}/-/ready",
        )
        yield url
