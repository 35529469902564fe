"""Real servers that take remote writes: Prometheus and VictoriaMetrics."""

from __future__ import annotations

import urllib.request

from peerwatch_demo.stack.servers import Server, Stack, find_program, free_ports


def prometheus(stack: Stack, *more: str, name: str = "prometheus") -> Server:
    """Start a Prometheus that scrapes nothing."""
    (port,) = free_ports(1)
    directory = stack.directory / name
    directory.mkdir()
    (directory / "prometheus.yml").write_text("")
    url = f"http://127.0.0.1:{port}"
    arguments = [
        find_program("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--log.level=warn",
        *more,
    ]
    return Server(url, stack.start(name, arguments, ready=f"{url}/-/ready"))


def victoria_metrics(stack: Stack, *more: str, name: str = "victoria-metrics") -> Server:
    """Start a VictoriaMetrics that scrapes nothing."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    arguments = [
        find_program("victoria-metrics"),
        f"-storageDataPath={stack.directory / name}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=1",
        "-loggerLevel=WARN",
        *more,
    ]
    return Server(url, stack.start(name, arguments, ready=f"{url}/health"))


def make_visible(server: Server) -> None:
    """Have a VictoriaMetrics answer with what was written until now."""
    with urllib.request.urlopen(f"{server.url}/internal/force_flush", timeout=300) as response:
        response.read()
