"""Services that must run, by what systemctl says; a program in its place answers."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import pytest

from peerwatch_checks.check import Context, Outcome, Skip
from peerwatch_checks.checks.config.services import ServicesOptions, services
from peerwatch_checks.facts.services import service_facts

if TYPE_CHECKING:
    from pathlib import Path

# By unit: load, active and sub state, state of the unit file, result. Others are not installed.
HEALTHY = {
    "slurmd": ("loaded", "active", "running", "enabled", "success"),
    "openibd": ("loaded", "active", "exited", "enabled", "success"),
    "chronyd": ("loaded", "active", "running", "enabled", "success"),
    "docker": ("loaded", "inactive", "dead", "disabled", "success"),
}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    return tmp_path


def systemd(
    node: Path, monkeypatch: pytest.MonkeyPatch, *failed: str, **units: tuple[str, ...]
) -> None:
    """Put programs in the place of systemctl, and of chroot, which starts it."""
    states = {name.replace("_", "-"): values for name, values in units.items()}
    shown = "\n".join(
        f'{name}.service) printf "Id=%s\\nLoadState=%s\\nActiveState=%s\\nSubState=%s\\n'
        f'UnitFileState=%s\\nResult=%s\\n\\n" $unit {" ".join(values)} ;;'
        for name, values in states.items()
    )
    listed = "".join(f"echo '{unit} loaded failed failed A unit'\n" for unit in failed)
    program(
        node / "bin/systemctl",
        f"""\
if [ "$1" = list-units ]; then
:
{listed}
exit 0
fi
for unit in "$@"; do case $unit in
show|--*) ;;
{shown}
*) printf "Id=%s\\nLoadState=not-found\\nActiveState=inactive\\nSubState=dead\\n\\n" $unit ;;
esac; done
""",
    )
    program(node / "bin/chroot", 'shift; exec "$@"\n')
    monkeypatch.setenv("PATH", f"{node / 'bin'}:/usr/bin:/bin")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(node: Path, **options: Any) -> dict[str, Outcome]:
    context = Context(ServicesOptions(**options), "n1", node, 30.0, rootfs=node)
    return {outcome.device: outcome for outcome in services(context)}


def test_a_node_whose_services_run_passes(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd(node, monkeypatch, **HEALTHY)

    found = run(node)

    assert {"": "pass"} == {name: each.status for name, each in found.items()}
    assert "(openibd, chronyd, slurmd)" in found[""].message


def test_what_is_enabled_and_does_not_run_is_named(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = ("loaded", "failed", "failed", "enabled", "exit-code")
    again = ("loaded", "activating", "auto-restart", "enabled", "exit-code")
    starts = ("loaded", "activating", "start-pre", "enabled", "success")
    units = HEALTHY | {"nvidia_fabricmanager": down, "munge": again, "kubelet": starts}
    systemd(node, monkeypatch, "nvidia-fabricmanager.service", **units)

    found = run(node)

    assert {
        "service.nvidia-fabricmanager": ("fail", "high"),
        "service.munge": ("fail", "low"),
        "service.kubelet": ("warn", None),
    } == {name: (each.status, each.severity) for name, each in found.items()}
    assert "nvidia-fabricmanager is failed (failed, exit-code), and it is enabled." in (
        found["service.nvidia-fabricmanager"].message
    )


def test_what_is_required_must_be_there(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd(node, monkeypatch, **HEALTHY)
    (node / "kind.yaml").write_text("service.docker: running\ncpu.model: x\n")

    found = run(node, required=["own-agent.service", "slurmd"], expectation=node / "kind.yaml")

    assert {"service.own-agent": "fail", "service.docker": "fail"} == {
        name: each.status for name, each in found.items()
    }
    assert "own-agent is not installed, and it is required." in found["service.own-agent"].message


def test_other_units_that_failed_are_a_warning(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd(node, monkeypatch, "backup.service", "apt-daily.service", **HEALTHY)

    assert {"backup.service": "warn"} == {name: each.status for name, each in run(node).items()}


def test_without_systemd_it_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="not started by systemd"):
        run(tmp_path)
    assert {} == service_facts(tmp_path)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo Failed to connect to bus >&2; exit 1", "ended with 1: Failed to connect to bus"),
        ("echo nonsense", "showed 0 of"),
    ],
    ids=["no bus", "nonsense"],
)
def test_a_systemd_that_does_not_answer_is_an_error(
    script: str, reason: str, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd(node, monkeypatch)
    program(node / "bin/systemctl", script)

    found = run(node)

    assert "error" == found[""].status
    assert reason in found[""].message


def test_an_expectation_that_says_something_else_is_an_error(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd(node, monkeypatch, **HEALTHY)
    (node / "kind.yaml").write_text("service.docker: maybe\n")

    (found,) = run(node, expectation=node / "kind.yaml").values()

    assert ("error", True) == (found.status, "'maybe' is not 'running'" in found.message)


def test_services_that_run_are_part_of_what_is_expected(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd(node, monkeypatch, **HEALTHY)

    assert {
        "service.openibd": "running",
        "service.chronyd": "running",
        "service.slurmd": "running",
    } == service_facts(node)
