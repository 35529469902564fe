"""The faults of the live evaluation: what is done, whom to blame, what it may be called."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from peerwatch_demo.cluster import faults as demo
from peerwatch_demo.cluster.faults import Site
from peerwatch_demo.cluster.namespaces import Shape
from peerwatch_demo.cluster.nodes import Node
from peerwatch_demo.stack.process import StackError

# Tells the job in which directory its ranks find what goes wrong; train.py has it too.
FAULTS_VARIABLE = "PEERWATCH_LIVE_FAULTS"

# The link's healthy rate, through a queue that holds four full frames: bursts are dropped.
_LOSSY_LINK = Shape(rate_bits=400_000_000, burst_bytes=4_000, limit_bytes=6_000)
# A twentieth of the healthy rate, through a queue that holds all that TCP sends.
_THROTTLED_LINK = Shape(rate_bits=20_000_000, burst_bytes=4_000, limit_bytes=64_000_000)
# A process stands still for most of each second, as one with a CPU quota of 30 % does.
_STOP_SECONDS, _RUN_SECONDS = 0.7, 0.3

_SLOW = frozenset({"compute_straggler"})
_NETWORK = frozenset(
    {"communication_straggler", "network_stuck", "tcp_retransmissions", "tcp_send_queue"}
)


@dataclass(slots=True)
class Ongoing:
    """What a fault keeps doing until the run ends."""

    ended: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def end(self) -> None:
        """Stop doing it."""
        self.ended.set()
        if self.thread is not None:
            self.thread.join()


Inject = Callable[[Site, Node, Path, Ongoing], None]


@dataclass(frozen=True, slots=True)
class LiveFault:
    """One fault.

    Parameters
    ----------
    name
        Its name in the table.
    classes
        Classes of verdicts, and metrics of findings, that are right for it.
    inject
        Does it to a node; gets the directory of the job's own faults.
    blames_node
        Whether a node is at fault; else the code of all is, and no node may be named.
    needs_namespaces
        Whether it needs a network for each node.
    """

    name: str
    classes: frozenset[str]
    inject: Inject
    blames_node: bool = True
    needs_namespaces: bool = False


def chosen(names: list[str] | None, *, namespaces: bool) -> list[LiveFault]:
    """Return the faults of these names, or all that work here.

    Raises
    ------
    ValueError
        If there is none of this name, or it needs namespaces; it says which there are.
    """
    usable = {fault.name: fault for fault in FAULTS if namespaces or not fault.needs_namespaces}
    if not names:
        return list(usable.values())
    if unknown := [name for name in names if name not in usable]:
        raise ValueError(f"{unknown[0]!r} is no fault that works here: {', '.join(usable)}.")
    return [usable[name] for name in dict.fromkeys(names)]


def _in_code(name: str) -> Inject:
    def inject(_site: Site, node: Node, directory: Path, _ongoing: Ongoing) -> None:
        (directory / f"rank-{node.rank}").write_text(name)

    return inject


def _signal(number: signal.Signals) -> Inject:
    def inject(_site: Site, node: Node, _directory: Path, _ongoing: Ongoing) -> None:
        node.signal("rank", number)

    return inject


def _duty_cycle(_site: Site, node: Node, _directory: Path, ongoing: Ongoing) -> None:
    def run() -> None:
        with suppress(StackError):
            while not ongoing.ended.is_set():
                node.signal("rank", signal.SIGSTOP)
                time.sleep(_STOP_SECONDS)
                node.signal("rank", signal.SIGCONT)
                ongoing.ended.wait(_RUN_SECONDS)

    ongoing.thread = threading.Thread(target=run, name="duty-cycle", daemon=True)
    ongoing.thread.start()


def _starved(site: Site, node: Node, directory: Path, ongoing: Ongoing) -> None:
    """Let the rank have what CPU two programs of a higher priority leave of its node."""
    _in_code("nice_19")(site, node, directory, ongoing)
    demo.cpu_contention(site, node)


def _slow_nic(site: Site, node: Node, _directory: Path, _ongoing: Ongoing) -> None:
    demo.slow_nic(site, node)


def _lossy_nic(site: Site, node: Node, _directory: Path, _ongoing: Ongoing) -> None:
    assert site.network is not None, "chosen() asks for namespaces"
    site.network.shape(node.name, _LOSSY_LINK)


def _throttled_nic(site: Site, node: Node, _directory: Path, _ongoing: Ongoing) -> None:
    assert site.network is not None, "chosen() asks for namespaces"
    site.network.shape(node.name, _THROTTLED_LINK)


# Nobody reaps the processes of these jobs: a zombie is the literal truth.
FAULTS = (
    LiveFault("infinite_loop", frozenset({"not_launched"}), _in_code("infinite_loop")),
    LiveFault("sleep_per_step", _SLOW, _in_code("sleep_per_step")),
    LiveFault("exception", frozenset({"rank_exited", "rank_zombie"}), _in_code("exception")),
    LiveFault(
        "exception_process_stays", frozenset({"rank_exited"}), _in_code("exception_process_stays")
    ),
    LiveFault("kill_9", frozenset({"rank_exited", "rank_zombie"}), _signal(signal.SIGKILL)),
    LiveFault("sigstop", frozenset({"rank_stopped"}), _signal(signal.SIGSTOP)),
    LiveFault("sigstop_duty_cycle", _SLOW | {"rank_stopped"}, _duty_cycle),
    LiveFault("starved_of_cpu", _SLOW | {"cpu_usage"}, _starved),
    LiveFault("slow_loader", _SLOW, _in_code("slow_loader")),
    LiveFault("gc_storm", _SLOW, _in_code("gc_storm")),
    LiveFault("lock_held", frozenset({"not_launched"}), _in_code("lock_held")),
    LiveFault(
        "memory_leak",
        frozenset({"memory_usage", "rank_memory_usage"}),
        _in_code("memory_leak"),
    ),
    LiveFault("slow_nic", _NETWORK, _slow_nic, needs_namespaces=True),
    LiveFault("lossy_nic", _NETWORK, _lossy_nic, needs_namespaces=True),
    LiveFault("throttled_nic", _NETWORK, _throttled_nic, needs_namespaces=True),
    LiveFault("slow_checkpoint", _SLOW | {"not_launched"}, _in_code("slow_checkpoint")),
    LiveFault(
        "wrong_order",
        frozenset({"call_order", "mismatch"}),
        _in_code("wrong_order"),
        blames_node=False,
    ),
    LiveFault(
        "mismatched_shape",
        frozenset({"mismatch"}),
        _in_code("mismatched_shape"),
        blames_node=False,
    ),
)
