"""Real Prometheus, Alertmanager and friends, started in order and taken down in reverse.

    with Stack(directory) as stack:
        notifier = alertmanager(stack, port, config)
        prometheus(stack, port, targets, rules=RULES, alertmanager=notifier.url)

Whatever happens inside the block, nothing that was started is left running.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from peerwatch_demo.stack.process import START_SECONDS, Process, StackError, free_ports, wait_http

__all__ = [
    "Process",
    "Server",
    "Stack",
    "StackError",
    "Target",
    "alertmanager",
    "alertmanager_config",
    "find_program",
    "free_ports",
    "prometheus",
    "prometheus_config",
    "wait_http",
]

# Where the webhooks of the shipped Alertmanager configuration point.
EXAMPLE_RECEIVER = "http://127.0.0.1:9099"


class Stack:
    """Everything the demo or a test has running, with a directory for logs and data.

    Parameters
    ----------
    directory
        An existing directory of its own; it is not removed.
    stop_seconds
        How long a process may take to end before it is killed.
    """

    def __init__(self, directory: Path, *, stop_seconds: float = 5.0) -> None:
        self.directory = directory
        self.processes: list[Process] = []
        self._stop_seconds = stop_seconds
        self._exit = ExitStack()
        (directory / "log").mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        ready: str | None = None,
        seconds: float = START_SECONDS,
        pipes: bool = False,
    ) -> Process:
        """Start a process and, where a URL is given in ``ready``, wait until it answers 200.

        Raises
        ------
        StackError
            If it cannot be started, dies, or is not ready within ``seconds``.
        """
        process = Process.start(
            name,
            arguments,
            self.directory / "log" / f"{name}.log",
            environment=environment,
            pipes=pipes,
        )
        self.processes.append(process)
        self._exit.callback(process.stop, self._stop_seconds)
        if ready is not None:
            wait_http(ready, process, seconds)
        return process

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when the stack is taken down, after all that is started later."""
        self._exit.callback(callback)

    def stop(self) -> None:
        """Take everything down, in reverse order of start; safe to call twice."""
        self._exit.close()


@dataclass(frozen=True, slots=True)
class Server:
    """A running HTTP server of the stack."""

    url: str
    process: Process


@dataclass(frozen=True, slots=True)
class Target:
    """What Prometheus scrapes: the scrape job's name, the address, and extra target labels."""

    job: str
    address: str
    labels: Mapping[str, str]


def find_program(*names: str) -> str:
    """Return the path of the first of ``names`` that is on PATH.

    Raises
    ------
    StackError
        If none is.
    """
    for name in names:
        if path := shutil.which(name):
            return path
    raise StackError(
        f"{names[0]!r} is not on PATH. `make demo` and `make test` fetch it; otherwise install "
        "the distribution's package."
    )


def prometheus_config(
    targets: Sequence[Target],
    *,
    rules: Sequence[Path],
    alertmanager: str | None = None,
    interval: str = "1s",
) -> str:
    """Return the text of a prometheus.yml: static targets, the shipped rules, one Alertmanager."""
    jobs = sorted({target.job for target in targets})
    config: dict[str, object] = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": interval,
        },
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [target.address], "labels": dict(target.labels)}
                    for target in targets
                    if target.job == job
                ],
            }
            for job in jobs
        ],
    }
    if alertmanager is not None:
        address = alertmanager.removeprefix("http://")
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}
    return yaml.safe_dump(config, sort_keys=False)


def prometheus(stack: Stack, port: int, config: str) -> Server:
    """Start a Prometheus on 127.0.0.1 with this configuration and wait until it is ready."""
    directory = stack.directory / "prometheus"
    # There already where its past was loaded.
    directory.mkdir(exist_ok=True)
    path = directory / "prometheus.yml"
    path.write_text(config)
    url = f"http://127.0.0.1:{port}"
    process = stack.start(
        "prometheus",
        [
            find_program("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ],
        ready=f"{url}/-/ready",
    )
    return Server(url, process)


def alertmanager_config(example: Path, receiver: str) -> str:
    """Return the shipped Alertmanager configuration, its webhooks sent to another receiver.

    Nothing else changes, so that what is tested is what is shipped.

    Parameters
    ----------
    example
        ``rules/alertmanager.example.yaml``.
    receiver
        Base URL of the receiver; the paths (``/page``, ``/ticket``, ``/heartbeat``) stay.

    Raises
    ------
    StackError
        If the example does not name the receiver that is to be replaced.
    """
    text = example.read_text()
    if EXAMPLE_RECEIVER not in text:
        raise StackError(f"{example}: no webhook at {EXAMPLE_RECEIVER!r} to replace.")
    return text.replace(EXAMPLE_RECEIVER, receiver)


def alertmanager(stack: Stack, port: int, config: str) -> Server:
    """Start an Alertmanager on 127.0.0.1 with this configuration and wait until it is ready."""
    directory = stack.directory / "alertmanager"
    directory.mkdir()
    path = directory / "alertmanager.yml"
    path.write_text(config)
    url = f"http://127.0.0.1:{port}"
    process = stack.start(
        "alertmanager",
        [
            # Debian's package calls the program by the package's name.
            find_program("prometheus-alertmanager", "alertmanager"),
            f"--config.file={path}",
            f"--storage.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ],
        ready=f"{url}/-/ready",
    )
    return Server(url, process)
