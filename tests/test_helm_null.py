"""A section whose lines are all comments is null, and Helm drops the chart's values with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from helm_chart import CHART, objects, refusal
from yaml_files import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ALL_ON = {
    "exporter": {
        "privileges": {"processes": True},
        "logs": {"enabled": True},
        "monitor": {"kind": "PodMonitor"},
    },
    "detector": {"replicas": 2, "monitor": {"kind": "ServiceMonitor"}},
    "checks": {"enabled": True},
    "responder": {"enabled": True, "tokenSecret": "token", "monitor": {"kind": "PodMonitor"}},
    "reliability": {"enabled": True, "monitor": {"kind": "PodMonitor"}},
    "rules": {"enabled": True},
    "dashboards": {"enabled": True},
}


def leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every value with its schema, a section before what it holds."""
    for key, value in schema["properties"].items():
        reference = value.get("$ref", "").rpartition("/")[2]
        found = SCHEMA["definitions"][reference] if reference else value
        yield ".".join((*path, key)), found
        # What is within settings of a program, or within resources, is no value of the chart.
        if key not in ("config", "resources") and "properties" in found:
            yield from leaves(found, (*path, key))


def takes_nothing(schema: dict[str, Any]) -> bool:
    """Return whether the empty text, map or list is a value."""
    if "enum" in schema:
        return "" in schema["enum"]
    if schema.get("type") == "string":
        return "minLength" not in schema and bool(re.search(schema.get("pattern", ""), ""))
    if schema.get("type") == "array":
        return "minItems" not in schema
    return schema.get("type") == "object" and "properties" not in schema


VALUES = dict(leaves(SCHEMA))
# These have sentences of their own.
FORMS = ("port", "interval", "scrapeTimeout")
# A file of rules that is not named is loaded.
NEEDED = [
    path
    for path, schema in VALUES.items()
    if not takes_nothing(schema)
    and not re.search(r"[.](config|resources)$|^rules[.]files[.]|^enabled$", path)
    and (path == "detector.service.port" or not path.endswith(FORMS))
]


def with_null(path: str) -> dict[str, Any]:
    """Return values with everything switched on and one of them null."""
    values: dict[str, Any] = json.loads(json.dumps(ALL_ON))
    *before, last = path.split(".")
    section = values
    for key in before:
        section = section.setdefault(key, {})
    section[last] = None
    return values


@pytest.mark.parametrize("path", NEEDED)
def test_what_the_chart_cannot_do_without_is_missed_by_its_name(path: str) -> None:
    said = refusal(with_null(path)).split("impossible values:\n")[1].strip().splitlines()

    assert [f"{path}: is null or missing; leave it out of your values"] == [
        line.split(" for the chart's own")[0] for line in said
    ]


@pytest.mark.parametrize("path", sorted(VALUES.keys() - set(NEEDED) - {"global", "enabled"}))
def test_any_other_null_means_nothing_or_is_refused_with_its_path(path: str) -> None:
    if path.endswith(("port", "interval")):
        assert f"  {path}: is empty; give a " in refusal(with_null(path))
    elif path in ("responder.tokenSecret", "prometheus.url"):
        assert f"  {path}: is empty; " in refusal(with_null(path))
    else:
        assert objects(with_null(path))


def test_an_upgrade_with_the_values_of_an_older_chart_is_told_what_to_do() -> None:
    said = refusal(with_null("reliability"))

    assert "--reset-then-reuse-values instead of --reuse-values" in said


def test_a_device_without_a_name_is_missed_also_when_it_is_null() -> None:
    privileges = {"kernelLog": "device", "kernelLogDevice": None}

    assert "exporter.privileges.kernelLogDevice: is empty" in refusal(
        {"exporter": {"privileges": privileges}}
    )


def test_the_values_of_the_chart_are_those_of_its_schema() -> None:
    of_a_parent = {"global", "enabled"}

    assert read_yaml(CHART / "values.yaml").keys() == SCHEMA["properties"].keys() - of_a_parent
