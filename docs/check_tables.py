"""The tables of docs/checks.md: what checks there are, their settings, and the floors of GPUs."""

from __future__ import annotations

from configuration_document import settings_table
from tables import cell

from peerwatch_checks.accelerators.floors import FLOORS, SOURCES, UNITS
from peerwatch_checks.check import checks
from peerwatch_common.health_conditions import CONDITIONS


def active_check_rows() -> list[str]:
    """Return a row for each check: what it does, needs and takes, and what a failure means."""
    rows = [
        "| check | scope | suites | does | needs | takes, s | at most, s | load | severity "
        "| a failure means |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for check in checks().values():
        suites = ", ".join(check.suites) or "-"
        needs = ", ".join(check.needs) or "-"
        rows.append(
            f"| `{check.name}` | {check.scope} | {suites} | {cell(check.summary)} | {needs} "
            f"| {check.seconds:g} | {check.timeout_seconds:g} | {'yes' if check.active else 'no'} "
            f"| {check.severity} | {cell(check.failure)} |"
        )
    return rows


def health_condition_rows() -> list[str]:
    """Return a row for each condition: its severity, and the checks and alerts that say it."""
    rows = [
        "| condition | severity | meaning | by whom | checks | alerts |",
        "|---|---|---|---|---|---|",
    ]
    for each in CONDITIONS:
        said = (f"`{check.name}`" for check in checks().values() if check.condition == each.name)
        alerts = (f"[{name}](runbooks/{name}.md)" for name in each.alerts)
        rows.append(
            f"| `{each.name}` | {each.severity} | {cell(each.meaning)} | {each.source} "
            f"| {', '.join(said) or '-'} | {', '.join(alerts) or '-'} |"
        )
    return rows


def check_setting_rows() -> list[str]:
    """Return a row for each setting of each check, tolerances among them."""
    return settings_table(
        {f"checks.{each.name}": each.options for each in checks().values() if each.options}
    )


def floor_rows() -> list[str]:
    """Return a row for each GPU with its floors, the units in the head."""
    head = " | ".join(f"{name}, {unit}" for name, unit in UNITS.items())
    rows = [f"| GPU, its name has | {head} |", "|---" * (len(UNITS) + 1) + "|"]
    for floors in FLOORS:
        values = " | ".join(
            f"{floors.values[name]:g}" if name in floors.values else "-" for name in UNITS
        )
        rows.append(f"| {' and '.join(floors.words)} | {values} |")
    return rows


def floor_source_rows() -> list[str]:
    """Return a row for each quantity: where its floors come from."""
    return [
        "| floor | what | source |",
        "|---|---|---|",
        *(
            f"| {name} | {cell(each.what)} | {cell(each.source)} |"
            for name, each in SOURCES.items()
        ),
    ]
