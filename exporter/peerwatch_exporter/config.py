"""What can be set on a node: every setting declared once, with its limits and its meaning.

The YAML file, the error texts and the documentation all follow from the classes below. A file
with mistakes is refused as a whole, with all of its mistakes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

# Pydantic looks the name up when it builds the class.
from peerwatch_exporter.knowledge.xid import Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class ConfigError(Exception):
    """The configuration cannot be used; ``mistakes`` has one line for each mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class _Section(BaseModel):
    # Strict: YAML's true is not the number 1, and a quoted number is a string.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListenConfig(_Section):
    """Where the exporter serves its page."""

    address: str = Field(
        default="0.0.0.0",  # noqa: S104 - Prometheus scrapes from another machine
        min_length=1,
        description="Address to listen on; :: serves IPv6 and IPv4.",
    )
    port: int = Field(
        default=9400, ge=0, le=65535, description="TCP port; 0 lets the system choose a free one."
    )


class ScopeConfig(_Section):
    """What counts as this node."""

    kind: Literal["host", "processes"] = Field(
        default="host",
        description="host: the whole machine. processes: only the processes whose environment "
        "holds all of scope.environment, for several nodes on one machine.",
    )
    environment: dict[str, str] = Field(
        default={}, description="Variables (name: value) that mark the node's processes."
    )
    cpus: float | None = Field(
        default=None, gt=0, le=65536, description="CPUs of the node; unset: those of the machine."
    )
    memory_bytes: int | None = Field(
        default=None, gt=0, description="Memory of the node; unset: that of the machine."
    )

    @model_validator(mode="after")
    def _processes_need_a_mark(self) -> ScopeConfig:
        if self.kind == "processes" and not self.environment:
            raise ValueError(
                "kind 'processes' needs at least one variable in environment, "
                "for example {PEERWATCH_NODE: node-0}"
            )
        return self


class PathsConfig(_Section):
    """Roots of the host's files, for containers that see them elsewhere."""

    procfs: Path = Field(default=Path("/proc"), strict=False, description="The node's /proc.")
    sysfs: Path = Field(default=Path("/sys"), strict=False, description="The node's /sys.")
    kmsg: Path = Field(default=Path("/dev/kmsg"), strict=False, description="The kernel log.")


class HeartbeatConfig(_Section):
    """Heartbeat files that ranks write about themselves."""

    directory: Path | None = Field(
        default=None,
        strict=False,
        description="Directory with one file rank-<rank>.json per rank; unset: none is read.",
    )
    forget_after_seconds: float = Field(
        default=1800,
        ge=10,
        le=604800,
        description="A file left by a process that is gone counts for this long, then no more.",
    )


class JobsConfig(_Section):
    """How the node's training jobs are found."""

    mapping_directory: Path | None = Field(
        default=None,
        strict=False,
        description="Directory in dcgm-exporter's format: files named by GPU index, one job id "
        "per line; the file 'node' names jobs of the node as a whole.",
    )
    environment: bool = Field(
        default=True, description="Also take job ids from the environment of rank processes."
    )


class CollectorsConfig(_Section):
    """Which collectors run."""

    enabled: list[str] | None = Field(
        default=None, description="Run exactly these; unset: those that run by default."
    )
    disabled: list[str] = Field(default=[], description="Never run these.")


class NvlinkConfig(_Section):
    """Detail of the NVLink metrics."""

    per_link: bool = Field(default=True, description="Publish state and errors of each link.")


class GpuConfig(_Section):
    """What is known of the node's GPUs beforehand."""

    expected_count: int | None = Field(
        default=None,
        ge=0,
        le=1024,
        description="GPUs the node should have; unset: the most seen since the start.",
    )


class EthtoolConfig(_Section):
    """Which network interfaces have their driver's statistics read."""

    interfaces: list[str] = Field(
        default=[],
        max_length=64,
        description="Names of interfaces to read besides those of the RDMA ports.",
    )


class XidConfig(_Section):
    """How serious XID errors are taken."""

    severity: dict[Annotated[int, Field(ge=1, le=9999)], Severity] = Field(
        default={},
        max_length=256,
        description="Classes of XID codes (1 to 9999) other than the built-in ones, for example "
        "{109: hardware}: hardware, degraded, watch, application or ignore. They also win over "
        "what a log line says.",
    )


class ExporterConfig(_Section):
    """All settings of one exporter, frozen once loaded."""

    listen: ListenConfig = Field(default=ListenConfig(), description="Where the page is served.")
    scope: ScopeConfig = Field(default=ScopeConfig(), description="What counts as this node.")
    paths: PathsConfig = Field(default=PathsConfig(), description="Roots of the host's files.")
    heartbeat: HeartbeatConfig = Field(
        default=HeartbeatConfig(), description="Heartbeat files of the ranks."
    )
    jobs: JobsConfig = Field(default=JobsConfig(), description="How training jobs are found.")
    collectors: CollectorsConfig = Field(
        default=CollectorsConfig(), description="Which collectors run."
    )
    deadline_seconds: float = Field(
        default=0.8,
        gt=0,
        le=60,
        description="A collector slower than this is left out of the page; keep it below the "
        "scrape timeout.",
    )
    nvlink: NvlinkConfig = Field(default=NvlinkConfig(), description="Detail of NVLink metrics.")
    xid: XidConfig = Field(default=XidConfig(), description="How serious XID errors are taken.")
    gpu: GpuConfig = Field(default=GpuConfig(), description="What is known of the GPUs.")
    ethtool: EthtoolConfig = Field(
        default=EthtoolConfig(), description="Interfaces with driver statistics."
    )


def load_config(
    path: Path | None, *, listen: str | None, known_collectors: Collection[str]
) -> ExporterConfig:
    """Return the settings of a YAML file, or the defaults if there is none.

    Parameters
    ----------
    path
        The file; ``None`` for defaults only.
    listen
        ``HOST:PORT`` from the command line, which wins over the file.
    known_collectors
        Names that may stand in ``collectors.enabled`` and ``collectors.disabled``.

    Raises
    ------
    ConfigError
        With every mistake found, each with its path.
    """
    mistakes: list[str] = []
    data = _read_yaml(path) if path is not None else {}
    if listen is not None:
        override = _parse_listen(listen)
        if override is None:
            mistakes.append(f"--listen: {listen!r} is not HOST:PORT, for example 127.0.0.1:9400")
        elif isinstance(data.get("listen", {}), dict):
            data = {**data, "listen": {**data.get("listen", {}), **override}}
    config = None
    try:
        config = ExporterConfig.model_validate(data)
    except ValidationError as error:
        mistakes += [_sentence(item) for item in error.errors(include_url=False)]
    mistakes += _unknown_collectors(data.get("collectors"), known_collectors)
    if mistakes or config is None:
        raise ConfigError(mistakes)
    return config


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML without silent loss: a key written twice in one mapping is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"key {key_node.value!r} stands twice (line {line})")
            # Only scalar keys are comparable; others are refused later as unknown keys.
            if isinstance(key_node, yaml.ScalarNode):
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not YAML: not a UTF-8 text file"]) from error
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - derives from SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: not YAML: {' '.join(str(error).split())}"]) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError([f"{path}: holds {type(data).__name__}, not a mapping of sections"])
    return {str(key): value for key, value in data.items()}


def _parse_listen(listen: str) -> dict[str, str | int] | None:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        return None
    return {"address": host, "port": int(port)}


def _sentence(error: Mapping[str, Any]) -> str:
    # Pydantic marks a wrong key of a mapping so; the key itself stands before it.
    location = [str(part) for part in error["loc"] if part != "[key]"]
    path = ".".join(location)
    if error["type"] == "extra_forbidden":
        known = ", ".join(sorted(_section(location[:-1]).model_fields))
        return f"{path}: unknown key {location[-1]!r}; known keys are {known}"
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    # A mistake between several keys is a sentence by itself; the whole section would be noise.
    return (
        f"{path}: {text}"
        if error["type"] == "value_error"
        else (f"{path}: {text}, not {error['input']!r}")
    )


def _section(location: list[str]) -> type[BaseModel]:
    section: type[BaseModel] = ExporterConfig
    for name in location:
        annotation = section.model_fields[name].annotation
        nested = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        section = next(kind for kind in nested if issubclass(kind, BaseModel))
    return section


def _unknown_collectors(section: object, known: Collection[str]) -> list[str]:
    if not isinstance(section, dict):
        return []
    return [
        f"collectors.{key}.{index}: no collector {name!r}; there are {', '.join(sorted(known))}"
        for key in ("enabled", "disabled")
        if isinstance(section.get(key), list)
        for index, name in enumerate(section[key])
        if isinstance(name, str) and name not in known
    ]
