"""Whether the node is set up as most of its peers are, by what Prometheus knows of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.prometheus.client import PrometheusError, Server
from peerwatch_checks.prometheus.settings_of_nodes import aspect, read_settings
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_checks.check import Context
    from peerwatch_checks.prometheus.settings_of_nodes import NodeSettings
    from peerwatch_common.check_results.record import Status

# More than half of two nodes is both.
_FEWEST_NODES = 3
# A value that more nodes have than this is no accident: an update is under way. Chosen: one of ten.
_RARE = 0.1
# Chosen: a node that differs in more has another image, and all of it need not be told.
_MOST_NAMED = 100
_HARDWARE = (
    *("gpu.count", "gpu.model", "gpu.pcie_", "nic.count", "nic.rate", "nic.link_layer"),
    *("nic.pcie_speed", "nic.pcie_width", "memory.gibibytes", "cpu.online", "numa.nodes"),
)
_VERSIONS = (
    *("driver.", "gpu.vbios", "gpu.gsp_firmware", "nic.firmware", "nic.board", "kernel.release"),
    *("machine.bios", "module.", "os.release"),
)
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"'
_SELECTOR = re.compile(rf"(?:{_MATCHER}(?:\s*,\s*{_MATCHER})*\s*,?)?")


class PeerConfigOptions(Options):
    """Whom to ask, and who the peers are."""

    url: str = Field(
        default="",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Base URL of any server with the Prometheus query API; empty: none is asked. "
        "`--prometheus` wins over it.",
    )
    job_id: str = Field(
        default="",
        max_length=256,
        description="The job whose nodes are the peers; empty: nodes of the same GPU, CPU and "
        "machine. `--job-id` wins over it.",
    )
    selector: str = Field(
        default="",
        max_length=1000,
        description='Matchers of labels that select the peers, such as `cluster="c1"`. '
        "`--selector` wins over it.",
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, le=20, description="Time limit for one answer, including its body."
    )
    username: str = Field(default="", description="For basic authentication.")
    password_file: Path | None = Field(default=None, description="File with its password.")
    bearer_token_file: Path | None = Field(
        default=None, description="File whose content is sent as Authorization: Bearer instead."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates that sign the server's; unset: the system's."
    )
    cert_file: Path | None = Field(
        default=None, description="Certificate to show to the server, for mutual TLS."
    )
    key_file: Path | None = Field(default=None, description="The certificate's key.")

    @field_validator("selector")
    @classmethod
    def _is_matchers(cls, text: str) -> str:
        inside = text.strip()
        if inside.startswith("{") and inside.endswith("}"):
            inside = inside[1:-1].strip()
        if not _SELECTOR.fullmatch(inside):
            raise ValueError(f'{text[:100]!r} must be matchers of labels, such as cluster="c1"')
        return inside.rstrip(", ")


def server_of(options: PeerConfigOptions) -> Server:
    """Return whom the settings say to ask."""
    return Server(**options.model_dump(exclude={"job_id", "selector"}))


@register(
    "peer_config",
    "config",
    "settings and versions against most of the peers, by Prometheus (--prometheus URL)",
    failure="the node has other hardware, versions or settings than its peers",
    condition="settings_differ",
    seconds=1.0,
    timeout_seconds=60.0,
    suites=("config", "full"),
    active=False,
    options=PeerConfigOptions,
)
def peer_config(context: Context) -> Iterator[Outcome]:
    """Yield an outcome for each key in which the node is in the minority, or one for all.

    Raises
    ------
    Skip
        If no server is set, or there are too few peers.
    """
    options = context.options
    assert isinstance(options, PeerConfigOptions)
    if not options.url:
        raise Skip("No Prometheus is set: --prometheus URL, or checks.peer_config.url.")
    try:
        server = server_of(options)
        known = read_settings(server, context.node, options.selector, options.job_id)
    except PrometheusError as error:
        yield Outcome("error", f"Its peers are not known: {error}.")
        return
    nodes = max((sum(values.values()) for values in known.nodes.values()), default=0)
    _require(known, nodes, context.node, options)
    found = list(_differing(known))
    yield from found[:_MOST_NAMED]
    if not found:
        text = f"In all {len(known.own)} settings it is like most of the {nodes} nodes."
        yield Outcome("pass", text)


def _require(known: NodeSettings, nodes: int, node: str, options: PeerConfigOptions) -> None:
    if not known.own:
        raise Skip(
            f"Prometheus has no node_config_info of {node!r}. Is its exporter scraped, and is this "
            "its name there (NODE_NAME, setting node)?"
        )
    if nodes < _FEWEST_NODES:
        who = f"of job {options.job_id!r}" if options.job_id else "with this GPU, CPU and machine"
        raise Skip(
            f"There are {nodes} nodes {who}, with this one; a majority takes {_FEWEST_NODES}."
        )


def _differing(known: NodeSettings) -> Iterator[Outcome]:
    for key, values in sorted(known.nodes.items()):
        total = sum(values.values())
        usual, count = max(values.items(), key=lambda each: each[1])
        # Without a majority nobody is in the minority.
        if total < _FEWEST_NODES or 2 * count <= total:
            continue
        most = f"{count} of {total} nodes have {usual!r}"
        own = known.own_values(key)
        if not own:
            yield Outcome("warn", f"{key} is not there or cannot be read; {most}.", key)
        for name, value in own.items():
            if value != usual:
                yield _outcome(name, value, most, _share(values, value, total))


def _share(values: Mapping[str, int], value: str, total: int) -> float:
    """Return which share of the others has this value too."""
    return (values.get(value, 1) - 1) / total


def _outcome(name: str, value: str, most: str, share: float) -> Outcome:
    text = f"{name} is {value!r}, {most}."
    if share > _RARE:
        return Outcome("warn", f"{text} An update that is under way?", name)
    status: Status = "fail" if _is(name, (*_HARDWARE, *_VERSIONS)) else "warn"
    is_hardware = _is(name, _HARDWARE)
    severity = severity_of("hardware_differs" if is_hardware else "settings_differ")
    return Outcome(status, f"{text} Make it like the others.", name, severity=severity)


def _is(name: str, beginnings: tuple[str, ...]) -> bool:
    return aspect(name).startswith(beginnings)
