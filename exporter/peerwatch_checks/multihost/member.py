"""Which part of a job this process is, as torchrun or Slurm say."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from peerwatch_checks.check import Outcome, Skip

# The port on which the first node listens under srun, where nobody gives one: Slurm's jobs share
# no node during a check. Chosen: near torchrun's own 29500, below those of outgoing connections.
_PORT = 29533


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the test.

    Parameters
    ----------
    index, count
        Which of the nodes it is, from 0, and how many there are.
    leads
        Whether this process does the node's part: the first rank of each node.
    host, port
        Where the store of the test is: on the first node.
    agent_store
        Whether the launcher keeps a store there already, as torchrun does.
    """

    index: int
    count: int
    leads: bool
    host: str
    port: int
    agent_store: bool = False

    def address(self) -> str:
        """Return the address by which the other nodes reach this one.

        Raises
        ------
        OSError
            If the first node's name cannot be resolved, or no route leads to it.
        """
        for family, _kind, _protocol, _name, place in socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_DGRAM
        ):
            # Nothing is sent: the route alone says the address.
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(place)
                return str(probe.getsockname()[0])
        raise OSError(f"{self.host} has no address.")


def member_of(environment: Mapping[str, str]) -> Member:
    """Return which node of the test this is.

    Parameters
    ----------
    environment
        That of the process: variables of torchrun, else of srun.

    Raises
    ------
    Skip
        If nobody started the process as one of several.
    ValueError
        If a variable is no number.
    """
    if "GROUP_RANK" in environment or {"RANK", "WORLD_SIZE"} <= environment.keys():
        return _of_torchrun(environment)
    if {"SLURM_NODEID", "SLURM_NNODES"} <= environment.keys():
        return _of_slurm(environment)
    raise Skip(
        "It needs several nodes: start it as torchrun --nnodes=N --nproc-per-node=1 --no-python "
        "peerwatch-check pair, or with srun."
    )


def take_part(environment: Mapping[str, str] | None, *, least_nodes: int, too_few: str) -> Member:
    """Return which node of a test this is, where it can take part; torch is kept quiet.

    Parameters
    ----------
    environment
        As for ``member_of``; None: that of the process.
    least_nodes
        How many the test needs.
    too_few
        What is said where there are fewer, ``{count}``.

    Raises
    ------
    Skip
        If this process does not take part, or there are too few nodes.
    ValueError
        If a variable is no number.
    """
    # A partner that has gone is an outcome, not screens of C++ frames.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    member = member_of(os.environ if environment is None else environment)
    if not member.leads:
        raise Skip("The first process of the node tests for all of it.")
    if member.count < least_nodes:
        raise Skip(too_few.format(count=member.count))
    return member


def first_node_gone(member: Member, error: RuntimeError) -> Outcome:
    """Return what a node says that does not reach the first one, at which all meet.

    Parameters
    ----------
    member
        Which node this is.
    error
        What the store said.

    Raises
    ------
    RuntimeError
        ``error``, if this is the first node itself: its store has not begun.
    """
    if member.index == 0:
        raise error
    why = str(error).partition("\n")[0][:200]
    return Outcome(
        "error",
        f"The first node, {member.host}, at which all meet, did not answer ({why}). Look whether "
        "it is up and was started; without it nobody is tested.",
    )


def came_too_late(member: Member) -> Outcome:
    """Return what a node says that the others began without."""
    text = (
        f"Node {member.index} came after the others had begun and was not tested. Start all nodes "
        "at once, or raise join_seconds."
    )
    return Outcome("error", text)


def _of_torchrun(environment: Mapping[str, str]) -> Member:
    local = _number(environment, "LOCAL_WORLD_SIZE", 1)
    ranks, rank = _number(environment, "WORLD_SIZE"), _number(environment, "RANK")
    return Member(
        index=_number(environment, "GROUP_RANK", rank // local),
        count=ranks // local,
        leads=_number(environment, "LOCAL_RANK", rank % local) == 0,
        host=environment.get("MASTER_ADDR", "127.0.0.1"),
        port=_number(environment, "MASTER_PORT", _PORT),
        agent_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _of_slurm(environment: Mapping[str, str]) -> Member:
    first = first_host(
        environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    )
    return Member(
        index=_number(environment, "SLURM_NODEID"),
        count=_number(environment, "SLURM_NNODES"),
        leads=_number(environment, "SLURM_LOCALID", 0) == 0,
        host=environment.get("MASTER_ADDR", first or "127.0.0.1"),
        port=_number(environment, "MASTER_PORT", _PORT),
    )


def first_host(nodes: str) -> str:
    """Return the first host of Slurm's list: ``gpu-007`` of ``gpu-[007-009,012],cpu1``."""
    head, bracket, rest = nodes.partition("[")
    if not bracket or "," in head:
        return nodes.partition(",")[0]
    inside, _, tail = rest.partition("]")
    first = inside.partition(",")[0].partition("-")[0]
    return head + first + tail.partition(",")[0]


def _number(environment: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    text = environment.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} is {text!r}, which is no number: the launcher sets it.")
    return int(text)
