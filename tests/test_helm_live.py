"""The exporter as the chart starts it: without a single capability nothing of it fails."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from helm_chart import case_objects, container_of, only
from peerwatch_demo.stack.process import Process, free_ports, wait_http
from web_client import ask, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What is mounted elsewhere in the pod, and what is not there.
HOST = ("--path.procfs=/proc", "--path.sysfs=/sys", "--path.kmsg=/nowhere")
POWERLESS = ("setpriv", "--no-new-privs", "--inh-caps=-all")


@pytest.fixture(scope="module", params=["default", "minimal"])
def exporter(request, tmp_path_factory) -> Iterator[tuple[Path, int]]:
    """Run a case's exporter on this machine; yield its log and its port."""
    rendered = case_objects(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    settings = only(rendered, "ConfigMap", "exporter")["data"]["exporter.yaml"]
    (folder / "exporter.yaml").write_text(settings)
    (port,) = free_ports(1)
    process = start(container_of(only(rendered, "DaemonSet"))["args"], folder, port)
    try:
        wait_http(f"http://127.0.0.1:{port}/-/ready", process)
        yield process.log, port
    finally:
        process.stop()


def start(flags: list[str], folder: Path, port: int) -> Process:
    # Only root has a bounding set to empty.
    bound = ["--bounding-set=-all"] if os.geteuid() == 0 else []
    changed = [f"--config={folder}/exporter.yaml", f"--listen=127.0.0.1:{port}", *HOST]
    names = {flag.partition("=")[0] for flag in changed}
    kept = [flag for flag in flags if flag.partition("=")[0] not in names]
    return Process.start(
        "peerwatch-exporter",
        [*POWERLESS, *bound, sys.executable, "-m", "peerwatch_exporter", *kept, *changed],
        folder / "log",
        environment={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def successes(port: int) -> dict[str, str]:
    exposition = ask(port, "/metrics").body.decode()
    sample = r'^exporter_collector_success\{collector="(\w+)"\} (\d)$'
    return dict(re.findall(sample, exposition, re.MULTILINE))


def test_no_collector_fails_for_want_of_a_right(exporter):
    log, port = exporter
    (names,) = re.findall(r" collectors=([\w,]+)", log.read_text())
    running = names.split(",")

    assert {"cpu", "tcp", "nic", "gpu", "jobs", "xid"} <= set(running)
    # The driver's process takes a moment.
    eventually(lambda: dict.fromkeys(running, "1") == successes(port))
