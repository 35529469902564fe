"""The demo's nodes: a session each, with a rank of the training job and a real exporter in it.

With namespaces a node also has a network of its own; without, all share 127.0.0.1 and their
exporters listen on different ports.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from peerwatch_demo.cluster.namespaces import Network
from peerwatch_demo.stack.process import START_SECONDS, Process, StackError, wait_http
from peerwatch_demo.stack.servers import Stack, Target

JOB_ID = "demo-4711"
EXPORTER_JOB = "peerwatch-exporter"
# The exporter's own default: each node has an address of its own.
_EXPORTER_PORT = 9400

# They read the whole machine's hardware, which is no single pretended node's own.
_MACHINE_COLLECTORS = (
    "disk",
    "ethtool",
    "gpm",
    "gpu",
    "health",
    "kernel",
    "nic",
    "nvlink",
    "pcie",
    "pressure",
    "sxid",
    "xid",
)
# Without namespaces the network, too, is the machine's.
_NETWORK_COLLECTORS = ("network", "tcp")


@dataclass(frozen=True, slots=True)
class NodeSize:
    """How large a node pretends to be; the exporter gives usage as a share of it."""

    cpus: float = 2.0
    memory_bytes: int = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Place:
    """Where the repository's parts are, and the interpreter that runs them."""

    root: Path
    python: str = sys.executable

    @property
    def rules(self) -> list[Path]:
        """The shipped rule files."""
        return sorted((self.root / "rules").glob("*.rules.yaml"))

    @property
    def alertmanager_example(self) -> Path:
        """The shipped Alertmanager configuration."""
        return self.root / "rules" / "alertmanager.example.yaml"

    @property
    def script(self) -> Path:
        """What the ranks of the demo's job run."""
        return self.root / "detector" / "peerwatch_demo" / "cluster" / "train.py"

    @property
    def hook(self) -> Path:
        """The directory whose ``sitecustomize`` makes any Python process send heartbeats."""
        return self.root / "exporter" / "peerwatch_exporter" / "hook"

    def environment(self, **extra: str) -> dict[str, str]:
        """Return this process's environment with the source roots on the module path."""
        paths = [str(self.root / "exporter"), str(self.root / "detector")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **extra}


class Node:
    """One node: its agent, and through it the rank, the exporter and what a fault adds."""

    def __init__(self, name: str, rank: int, address: str, port: int, directory: Path) -> None:
        self.name = name
        self.rank = rank
        self.address = address
        self.port = port
        self.directory = directory
        self._agent: Process | None = None
        for part in ("heartbeat", "jobs"):
            (directory / part).mkdir(parents=True)

    @property
    def target(self) -> Target:
        """What Prometheus scrapes of this node."""
        return Target(EXPORTER_JOB, f"{self.address}:{self.port}", {"node": self.name})

    @property
    def agent(self) -> Process:
        """The node's first process, leader of its session."""
        assert self._agent is not None, "boot() comes first"
        return self._agent

    @property
    def rank_pid(self) -> Path:
        """Where a rank that another launcher has started here writes its process id."""
        return self.directory / "rank.pid"

    @property
    def rank_log(self) -> Path:
        """What the rank prints."""
        return self.directory / "rank.log"

    def boot(self, stack: Stack, place: Place, enter: Sequence[str] = ()) -> None:
        """Start the node's first process; ``enter`` puts it into the node's namespace."""
        self._agent = stack.start(
            self.name,
            [*enter, place.python, "-m", "peerwatch_demo.cluster.agent"],
            environment=place.environment(),
            pipes=True,
        )

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start a process in the node's session and return its id.

        Raises
        ------
        StackError
            If the node is dead or the program cannot be executed.
        """
        log = self.directory / f"{name}.log"
        command = {
            "start": name,
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
        }
        return self._send(command)

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to one of the node's processes and return its id.

        Raises
        ------
        StackError
            If the node is dead or has no such process.
        """
        if name == "rank" and self.rank_pid.exists():
            pid = int(self.rank_pid.read_text())
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                raise StackError(f"{self.name}: its rank, process {pid}, has ended.") from None
            return pid
        return self._send({"signal": name, "number": int(number)})

    def end(self, name: str) -> int:
        """End one of the node's processes, wait until it is gone, and return its id.

        Raises
        ------
        StackError
            If the node is dead or has no such process.
        """
        return self._send({"end": name})

    def kill(self) -> None:
        """Kill everything on the node at once."""
        self.agent.kill()
        if self.rank_pid.exists():
            with suppress(StackError):
                self.signal("rank", signal.SIGKILL)

    def assign(self, job_id: str | None) -> None:
        """Write the node's job as a scheduler's prolog does, or remove it as its epilog does."""
        path = self.directory / "jobs" / "node"
        if job_id is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"{job_id}\n")

    def _send(self, command: Mapping[str, object]) -> int:
        if not self.agent.alive:
            raise StackError(f"{self.name} is dead.")
        try:
            self.agent.stdin.write(json.dumps(command).encode() + b"\n")
            self.agent.stdin.flush()
            line = self.agent.stdout.readline()
        except OSError as error:
            raise StackError(f"{self.name} does not answer: {error}.") from error
        answer = json.loads(line or b'{"error": "the agent has ended"}')
        if "error" in answer:
            raise StackError(f"{self.name}: {answer['error']}.\n{self.agent.tail()}")
        return int(answer["pid"])


def exporter_config(node: Node, size: NodeSize, *, namespaces: bool, logs: bool = False) -> str:
    """Return the exporter's configuration on a node; ``logs``: of ranks, the kernel's is shared."""
    disabled = _MACHINE_COLLECTORS if namespaces else (*_MACHINE_COLLECTORS, *_NETWORK_COLLECTORS)
    return str(yaml.safe_dump({
        "listen": {"address": node.address, "port": node.port},
        "scope": {
            "kind": "processes",
            "environment": marks(node),
            "cpus": size.cpus,
            "memory_bytes": size.memory_bytes,
        },
        "heartbeat": {"directory": str(node.directory / "heartbeat")},
        "jobs": {"mapping_directory": str(node.directory / "jobs")},
        "collectors": {"disabled": sorted(disabled)},
        "logs": {"enabled": logs, "kernel": False, "pods_directory": None},
    }))  # fmt: skip


def make_nodes(
    names: Sequence[str], directory: Path, ports: Sequence[int], network: Network | None
) -> list[Node]:
    """Return the nodes, not yet booted, each with a directory below ``directory``."""
    return [
        Node(
            name,
            rank,
            network.address(name) if network else "127.0.0.1",
            _EXPORTER_PORT if network else ports[rank],
            directory / name,
        )
        for rank, name in enumerate(names)
    ]


def start_exporter(
    node: Node, place: Place, size: NodeSize, *, namespaces: bool, logs: bool = False
) -> None:
    """Start the node's exporter; ``wait_exporter`` waits for it."""
    config = node.directory / "exporter.yaml"
    config.write_text(exporter_config(node, size, namespaces=namespaces, logs=logs))
    node.start(
        "exporter",
        [place.python, "-m", "peerwatch_exporter", "--config", str(config)],
        place.environment(),
    )


def wait_exporter(node: Node, seconds: float = START_SECONDS) -> None:
    """Wait until the node's exporter is ready.

    Raises
    ------
    StackError
        If it does not get ready; with the end of its log.
    """
    try:
        wait_http(f"http://{node.address}:{node.port}/-/ready", node.agent, seconds)
    except StackError as error:
        log = (node.directory / "exporter.log").read_text(errors="replace")
        raise StackError(f"{error}\n{log[-2000:]}") from error


def marks(node: Node) -> dict[str, str]:
    """Return the variables by which the node's exporter knows the node's processes.

    The demo's own process id is one of them: another demo has nodes of the same names.
    """
    return {"PEERWATCH_NODE": node.name, "PEERWATCH_DEMO": str(os.getpid())}


def node_environment(node: Node, place: Place) -> dict[str, str]:
    """Return the environment of a process that belongs to the node."""
    return place.environment(**marks(node))


def start_rank(
    node: Node,
    nodes: Sequence[Node],
    place: Place,
    port: int,
    script: Path,
    variables: Mapping[str, str],
    *,
    namespaces: bool,
) -> None:
    """Start the node's rank as a launcher does, with Peerwatch's heartbeat and spans on."""
    environment = (
        node_environment(node, place)
        | rank_environment(place, namespaces=namespaces)
        | {
            "RANK": str(node.rank),
            "LOCAL_RANK": "0",
            # All nodes are one host with one GPU, which NCCL refuses to two of its ranks.
            "NCCL_HOSTID": node.name,
            "WORLD_SIZE": str(len(nodes)),
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": nodes[0].address,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": JOB_ID,
            "PEERWATCH_HEARTBEAT_DIR": str(node.directory / "heartbeat"),
            **variables,
        }
    )
    checkpoint = node.directory / "checkpoint.pt"
    node.start(
        "rank", [place.python, "-P", str(script), "--checkpoint", str(checkpoint)], environment
    )


def rank_environment(place: Place, *, namespaces: bool) -> dict[str, str]:
    """Return what all ranks have in common, with Peerwatch's heartbeat and spans on."""
    interface = "eth0" if namespaces else "lo"
    return {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        "OMP_NUM_THREADS": "1",
        # The job needs none of Peerwatch's code: only the hook is on its module path.
        "PYTHONPATH": str(place.hook),
        "PEERWATCH_SPANS": "1",
    }


def stop_together(cluster: Sequence[Node]) -> None:
    """Ask all nodes to end at once; each is waited for when its turn comes."""
    for node in cluster:
        node.agent.signal(signal.SIGTERM)
