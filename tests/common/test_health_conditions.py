"""One table of what can be wrong with a node: checks, rules and XIDs agree with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from peerwatch_checks.check import checks
from peerwatch_common.health_conditions import (
    CONDITIONS,
    META,
    XID_CLASSES,
    condition_of_alert,
    severity_of,
)
from peerwatch_exporter.catalog.xid_codes import Severity as XidClass
from yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[2]
# About what many nodes have in common, or nodes at a switch: nobody is taken out for it.
ABOUT_MANY = {"PeerwatchSharedCause", "PeerwatchCheckFailedOnManyNodes"}
# What can be wrong with a node; the rest is about jobs, the fabric and Peerwatch itself.
ABOUT_NODES = {"gpu", "pcie", "nic", "host", "node"}


def alerts() -> list[dict[str, str]]:
    """Return the labels of each alert, with its name."""
    return [
        {"alertname": rule["alert"], **rule["labels"]}
        for path in sorted((ROOT / "rules").glob("*.rules.yaml"))
        for group in read_yaml(path)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def test_what_meta_calls_high_is_high() -> None:
    high = {each.name for each in CONDITIONS if each.severity == "high" and each.source == META}
    assert high == {
        *("gpu_inaccessible", "nvlink_errors", "uncorrectable_ecc", "row_remap_failed"),
        *("pcie_link_errors", "network_link_errors", "block_device_errors", "missing_mount"),
    }


def test_a_condition_and_an_alert_are_there_once() -> None:
    assert {1} == set(Counter(each.name for each in CONDITIONS).values())
    assert {1} == set(Counter(alert for each in CONDITIONS for alert in each.alerts).values())


def test_checks_take_their_severity_from_it() -> None:
    for check in checks().values():
        if check.path.is_relative_to(ROOT):
            own = check.path.is_relative_to(ROOT / "exporter")
            assert own == bool(check.condition), check.name
            assert not own or check.severity == severity_of(check.condition)


def test_alerts_of_the_table_are_there_and_those_of_severity_low_wake_nobody() -> None:
    known = alerts()
    names = {each["alertname"] for each in known}
    for condition in CONDITIONS:
        assert names.issuperset(condition.alerts), condition.name
        levels = {each["severity"] for each in known if each["alertname"] in condition.alerts}
        assert condition.severity == "high" or "critical" not in levels, condition.name


def test_an_alert_that_pages_somebody_about_one_node_is_of_severity_high() -> None:
    paging = {
        each["alertname"]
        for each in alerts()
        if each["severity"] == "critical"
        and each["role"] == "cause"
        and each["component"] in ABOUT_NODES
    }
    assert paging - ABOUT_MANY
    for name in paging - ABOUT_MANY:
        condition = condition_of_alert(name)
        assert condition is not None, name
        assert condition.severity == "high", name


def test_classes_of_xids_are_those_of_the_catalogue() -> None:
    assert XID_CLASSES.keys() <= set(get_args(XidClass))


def test_what_is_not_in_it() -> None:
    assert condition_of_alert("PeerwatchJobStalled") is None
    with pytest.raises(KeyError):
        severity_of("tired")
