"""Whether the services that training depends on run, and whether a unit of systemd has failed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.facts.expectation import SERVICE, expected_services
from peerwatch_checks.facts.services import KNOWN, ServicesError, failed_units, states_of
from peerwatch_common.errors import ConfigError
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_checks.check import Context
    from peerwatch_checks.facts.services import Service

# On a node with NVSwitch no process gets a CUDA context without them.
_FOR_CONTEXTS = frozenset({"nvidia-fabricmanager", "nvidia-imex"})
# Chosen: a node on which more have failed has one reason for all of them.
_MOST_FAILED = 32


class ServicesOptions(Options):
    """Which services."""

    required: tuple[str, ...] = Field(
        default=(),
        description="Services that must run, such as slurmd; what an expectation file names is "
        "required as well.",
    )
    expectation: Path | None = Field(
        default=None,
        description="The file of inventory.expectation: its keys service.NAME count.",
    )
    ignore_failed: tuple[str, ...] = Field(
        default=("apt-daily*", "motd-news*", "systemd-networkd-wait-online*", "user@*"),
        description="Units whose failure says nothing of the node, as patterns of a shell.",
    )


@register(
    "services",
    "config",
    "services that must run: fabric manager, persistence, time, scheduler; failed units",
    failure="jobs do not start, get no CUDA context, or have a wrong time",
    condition="service_down",
    seconds=0.3,
    timeout_seconds=30.0,
    suites=("config", "light", "full"),
    active=False,
    options=ServicesOptions,
)
def services(context: Context) -> Iterator[Outcome]:
    """Yield an outcome for each service that does not run and each failed unit, or one for all.

    Raises
    ------
    Skip
        If this machine was not started by systemd.
    """
    options = context.options
    assert isinstance(options, ServicesOptions)
    try:
        required = _required(options)
        known = states_of((*required, *KNOWN), context.rootfs)
        failed = failed_units(context.rootfs)
    except (ConfigError, ServicesError) as error:
        mistakes = error.mistakes if isinstance(error, ConfigError) else (str(error),)
        yield Outcome("error", "; ".join(mistakes))
        return
    # Installed and enabled is what somebody wants to run.
    must = {name: each for name, each in known.items() if name in required or each.enabled}
    bad = 0
    for name, each in must.items():
        if not each.runs:
            bad += 1
            yield _outcome(name, each, required)
    ours = {_unit(name) for name in must}
    others = [unit for unit in failed if unit not in ours and not _ignored(unit, options)]
    yield from map(_failed, others[:_MOST_FAILED])
    if not bad and not others:
        names = ", ".join(must) or "no known service is enabled"
        yield Outcome("pass", f"All services that must run do ({names}); no unit has failed.")


def _required(options: ServicesOptions) -> tuple[str, ...]:
    expected = () if options.expectation is None else expected_services(options.expectation)
    named = (*options.required, *expected)
    return tuple(dict.fromkeys(name.removesuffix(".service") for name in named))


def _outcome(name: str, service: Service, required: tuple[str, ...]) -> Outcome:
    why = "it is required" if name in required else "it is enabled"
    if service.starts:
        return Outcome("warn", f"{name} is still being started; {why}.", f"{SERVICE}{name}")
    severity = severity_of("gpu_inaccessible" if name in _FOR_CONTEXTS else "service_down")
    advice = (
        f"Read journalctl -u {name}, then start it."
        if service.installed
        else "Install it, or correct checks.services."
    )
    text = f"{name} is {service.state}, and {why}. {advice}"
    return Outcome("fail", text, f"{SERVICE}{name}", severity=severity)


def _failed(unit: str) -> Outcome:
    text = f"{unit} has failed. Read journalctl -u {unit}; systemctl reset-failed if it is over."
    return Outcome("warn", text, unit)


def _unit(name: str) -> str:
    return name if "." in name else f"{name}.service"


def _ignored(unit: str, options: ServicesOptions) -> bool:
    return any(fnmatchcase(unit, pattern) for pattern in options.ignore_failed)
