"""The server and the command line, over real sockets and in real processes."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import peerwatch_exporter
from hardware_cases import FakeClock
from peerwatch_exporter import __version__
from peerwatch_exporter.__main__ import main
from peerwatch_exporter.catalog import family
from peerwatch_exporter.runner import Runner
from peerwatch_exporter.server import ListenError, MetricsServer, make_app
from peerwatch_exporter.sources import Paths, Sources


class Cpus:
    def collect(self):
        cpus = family("host_cpus")
        cpus.add_metric([], 2)
        return [cpus]


@pytest.fixture
def runner(tmp_path):
    sources = Sources(Paths(tmp_path, tmp_path, tmp_path), clock=FakeClock(), monotonic=FakeClock())
    return Runner({"cpu": Cpus}, sources, deadline_seconds=20, version="1")


@pytest.fixture
def server(runner):
    result = MetricsServer("127.0.0.1", 0, make_app(runner))
    result.start()
    yield result
    result.stop()


def ask(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type"), response.read().decode()
    finally:
        connection.close()


def test_metrics_are_served_as_text(server):
    status, content_type, body = ask(server.port, "/metrics")
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (status, content_type)
    assert "\nhost_cpus 2.0\n" in body


def test_openmetrics_is_served_to_who_asks_for_it(server):
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    status, content_type, body = ask(server.port, "/metrics", Accept=accept)
    assert (200, "application/openmetrics-text") == (status, content_type.split(";")[0])
    assert body.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/", 200, 'href="/metrics"'),
        ("/-/healthy", 200, "healthy"),
        ("/-/ready", 200, "ready"),
        ("/metric", 404, "/metrics"),
    ],
)
def test_path_is_answered(server, path, status, text):
    actual, _, body = ask(server.port, path)
    assert status == actual
    assert text in body


def test_other_methods_are_refused(server):
    assert 405 == ask(server.port, "/metrics", method="POST")[0]


def test_head_has_no_body(server):
    assert (200, "") == ask(server.port, "/-/healthy", method="HEAD")[::2]


def test_port_in_use_says_so(server, runner):
    with pytest.raises(ListenError, match=rf"port {server.port}: Address already in use\. Choose"):
        MetricsServer("127.0.0.1", server.port, make_app(runner))


def test_stopped_server_frees_its_port(runner):
    first = MetricsServer("127.0.0.1", 0, make_app(runner))
    first.start()
    first.stop()
    MetricsServer("127.0.0.1", first.port, make_app(runner))._server.server_close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_serves_and_ends_cleanly_on_a_signal(number):
    command = [sys.executable, "-m", "peerwatch_exporter", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(peerwatch_exporter.__file__).parents[1])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            port = int(re.search(r"port=(\d+)", process.stderr.readline())[1])
            status, _, body = ask(port, "/metrics")
            process.send_signal(number)
            assert 0 == process.wait(20)
        finally:
            process.kill()
    assert 200 == status
    assert 'exporter_collector_success{collector="cpu"} 1.0' in body


def test_port_in_use_ends_the_process_with_1(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert 1 == main(["--listen", f"127.0.0.1:{port}"])
    assert f"port {port}: Address already in use" in capsys.readouterr().err


def test_mistakes_end_the_process_with_2(tmp_path, capsys):
    path = tmp_path / "wrong.yaml"
    path.write_text("paths: {procfz: /proc}\ncollectors: {disabled: [nvme]}\n")
    assert 2 == main(["--config", str(path)])
    first, *mistakes = capsys.readouterr().err.splitlines()
    assert "peerwatch-exporter: 2 mistakes in the settings" == first
    assert ["  paths.procfz:", "  collectors.disabled.0:"] == [
        mistake[: mistake.index(":") + 1] for mistake in mistakes
    ]


def test_collectors_are_listed(capsys):
    assert 0 == main(["collectors"])
    header, *rows = capsys.readouterr().out.splitlines()
    assert ["COLLECTOR", "DEFAULT", "SUMMARY"] == header.split()
    names = [row.split()[0] for row in rows]
    assert {"cpu", "memory", "disk", "network", "tcp", "ranks", "jobs", "gpu"} <= set(names)
    assert sorted(names) == names
    assert all(row.split()[1] in {"on", "off"} and len(row.split()) > 2 for row in rows)


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (0, f"peerwatch-exporter {__version__}\n") == (ended.value.code, capsys.readouterr().out)
