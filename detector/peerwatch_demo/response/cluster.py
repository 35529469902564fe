"""The demo's cluster with a spare node, a job that a launcher runs, and a responder."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from peerwatch_demo.cluster.cluster import Cluster
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.response import slurm_job
from peerwatch_demo.response.driver import DriverJob
from peerwatch_demo.response.job import JobFiles, Launcher
from peerwatch_demo.response.slurm_job import CONTROLLER, SlurmJob
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import free_ports
from peerwatch_demo.stack.servers import Server, Stack, Target, alertmanager_config
from peerwatch_demo.stack.webhook import WebhookReceiver

RESPONDER_JOB = "peerwatch-responder"
# The alerts that are answered here.
ALERT = "PeerwatchFaultyNode"
# A sixth of the responder's own default (30 s): the demo has one fault, and no other comes.
SETTLE_SECONDS = 5.0


class RespondingCluster(Cluster):
    """Nodes of which one is spare, and a job that is started again without a person.

    Parameters
    ----------
    names
        Of the nodes; the last ``spare`` of them run no rank at first.
    place, stack, console, namespaces
        As of ``Cluster``.
    spare
        How many nodes have no rank.
    slurm
        Whether a real Slurm runs the job; otherwise a driver runs it as processes.
    """

    def __init__(
        self,
        names: Sequence[str],
        place: Place,
        stack: Stack,
        console: Console,
        *,
        namespaces: bool,
        spare: int = 1,
        slurm: bool,
    ) -> None:
        hosts = (CONTROLLER,) if slurm else ()
        super().__init__(
            names, place, stack, console, namespaces=namespaces, logs=True, hosts=hosts
        )
        self._slurm = slurm
        self._ranks = len(names) - spare
        folder = stack.directory / "job"
        folder.mkdir()
        self.files = JobFiles(folder)
        self._token = secrets.token_hex(16)
        (self._responder_port,) = free_ports(1)
        self.responder_url = f"http://127.0.0.1:{self._responder_port}"
        self._launcher: Launcher | None = None

    @property
    def launcher(self) -> Launcher:
        """What runs the job."""
        assert self._launcher is not None, "start_job() comes first"
        return self._launcher

    def start_job(self) -> None:
        """Have the job started by Slurm or by the driver.

        Raises
        ------
        StackError
            If it could not be.
        """
        network = self.site.network
        self.files.write(self.nodes, self._place, namespaces=network is not None, environment={})
        if self._slurm:
            arguments = (self.files, self._place, self._stack, network)
            self._launcher = SlurmJob(self.nodes, self._ranks, *arguments)
        else:
            driver = DriverJob(self.nodes, self._ranks, self.files, self._place)
            driver.__enter__()
            self._stack.on_stop(lambda: driver.__exit__(None, None, None))
            self._launcher = driver
        self.job_id = self._launcher.start()
        self._console.line(
            f"{self._launcher.name} runs training job {self.job_id} (torch, gloo): {self._ranks} "
            f"ranks, a node each, {len(self.nodes) - self._ranks} node spare; each has an exporter"
        )

    @property
    def rank_log(self) -> Path:
        """What rank 0 prints, wherever it runs now."""
        try:
            return Path(self.files.first_rank.read_text())
        except OSError:
            return super().rank_log

    def targets(self) -> list[Target]:
        """Return what Prometheus scrapes, the responder as well."""
        address = self.responder_url.removeprefix("http://")
        return [*super().targets(), Target(RESPONDER_JOB, address, {})]

    def notifications(self, receiver: WebhookReceiver) -> str:
        """Return the shipped configuration of Alertmanager, with a route to the responder."""
        example = alertmanager_config(self._place.alertmanager_example, receiver.url)
        return with_responder(example, f"{self.responder_url}/api/v1/alerts", self._token)

    def detector_config(self, models: Path | None) -> str:
        """Return the detector's configuration file: it asks for the root more often, too."""
        config = yaml.safe_load(super().detector_config(models))
        config["diagnosis"] = {"root_interval_seconds": 5}
        return yaml.safe_dump(config, sort_keys=False)

    def start_responder(self) -> Server:
        """Start the responder and wait until it listens."""
        assert self.prometheus is not None, "start_servers() comes first"
        assert self.alertmanager is not None, "start_servers() comes first"
        folder = self._stack.directory / "responder"
        folder.mkdir()
        token = folder / "token"
        token.write_text(self._token)
        told = self.launcher.settings()
        rule = {
            "name": "replace a faulty node",
            "match": {"alertname": ALERT, "severity": "critical"},
            "do": told["do"],
        }
        settings: dict[str, Any] = {
            "dry_run": False,
            "journal": str(folder / "journal.jsonl"),
            "interval_seconds": 1,
            "listen": {"address": "127.0.0.1", "port": self._responder_port},
            "web": {"token_file": str(token)},
            "alertmanager": {"url": self.alertmanager.url},
            "prometheus": {"url": self.prometheus.url},
            "policy": {"settle_seconds": SETTLE_SECONDS, "rules": [rule]},
            "actions": told["actions"],
        }
        if told["cluster"]:
            settings["cluster"] = told["cluster"]
        path = folder / "responder.yaml"
        path.write_text(yaml.safe_dump(settings, sort_keys=False))
        process = self._stack.start(
            "responder",
            [self._place.python, "-m", "peerwatch_responder", "run", "--config", str(path)],
            environment=self._place.environment(),
            ready=f"{self.responder_url}/-/ready",
        )
        self._console.line(
            f"peerwatch-responder run: it may take out one node and tells {self.launcher.name}"
        )
        return Server(self.responder_url, process)


def with_responder(config: str, url: str, token: str) -> str:
    """Return a configuration of Alertmanager in which the responder hears of faulty nodes, too.

    Parameters
    ----------
    config
        The configuration without it.
    url
        Where its webhook is.
    token
        What Alertmanager bears.
    """
    content = yaml.safe_load(config)
    route = {
        "receiver": "responder",
        "matchers": [f'alertname="{ALERT}"'],
        "group_by": ["cluster", "node"],
        "group_wait": "0s",
        "group_interval": "10s",
        "repeat_interval": "1h",
        # The pager hears of it all the same.
        "continue": True,
    }
    content["route"]["routes"].insert(0, route)
    hook = {
        "url": url,
        "send_resolved": True,
        "http_config": {"authorization": {"credentials": token}},
    }
    content["receivers"].append({"name": "responder", "webhook_configs": [hook]})
    return yaml.safe_dump(content, sort_keys=False)


def use_slurm(*, namespaces: bool) -> str:
    """Return why a real Slurm cannot run the job here; empty: it can."""
    return slurm_job.why_unavailable(namespaces=namespaces)


def history(fetched: object) -> list[dict[str, Any]]:
    """Return the responses that the responder tells of, the newest first; none if it does not."""
    if not isinstance(fetched, dict):
        return []
    return [json.loads(json.dumps(each)) for each in fetched.get("responses", ())]
