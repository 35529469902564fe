"""The chart under helm/, rendered by real Helm, for the tests of it."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "peerwatch"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*-values.yaml"))

helm = pytest.importorskip(
    "helm_python", reason="helm-python-sdk has no wheel for this platform: the chart is not tested"
)

# libyaml's, ten times as fast, where it was built.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


def values_of(case: str) -> dict[str, Any]:
    return copy.deepcopy(read_yaml(CHART / "ci" / f"{case}-values.yaml"))


def templates(values: dict[str, Any], **options: Any) -> dict[str, str]:
    """Return the rendered templates by path, as `helm template pw --namespace training` does."""
    with helm.Chart.load(CHART) as chart:
        return chart.render(values, **{"name": "pw", "namespace": "training"} | options)


def objects(values: dict[str, Any], **options: Any) -> list[Object]:
    """Return the rendered objects."""
    texts = templates(values, **options)
    return [
        manifest
        for path, text in sorted(texts.items())
        if path.endswith(".yaml")
        for manifest in yaml.load_all(text, Loader)
        if manifest is not None
    ]


def notes_of(values: dict[str, Any]) -> str:
    """Return what Helm prints once the chart is installed."""
    (text,) = [text for path, text in templates(values).items() if "NOTES" in path]
    return text


@cache
def _rendered(case: str) -> list[Object]:
    return objects(values_of(case))


def case_objects(case: str) -> list[Object]:
    """Return the objects of one of the chart's own cases, ci/<case>-values.yaml."""
    return copy.deepcopy(_rendered(case))


def of_kind(rendered: list[Object], kind: str, component: str | None = None) -> list[Object]:
    """Return the objects of a kind, of one component if it is named."""
    label = "app.kubernetes.io/component"
    return [
        manifest
        for manifest in rendered
        if manifest["kind"] == kind and component in (None, manifest["metadata"]["labels"][label])
    ]


def only(rendered: list[Object], kind: str, component: str | None = None) -> Object:
    """Return the one object of a kind."""
    (found,) = of_kind(rendered, kind, component)
    return found


def pod_of(workload: Object) -> Object:
    """Return the pod of a workload, or the pod that it is."""
    return workload if workload["kind"] == "Pod" else workload["spec"]["template"]


def pods_of(rendered: list[Object]) -> list[Object]:
    """Return all pods, those of workloads and single ones."""
    kinds = ("DaemonSet", "StatefulSet", "Pod")
    return [pod_of(manifest) for manifest in rendered if manifest["kind"] in kinds]


def container_of(workload: Object) -> Object:
    """Return the one container of a workload."""
    (container,) = pod_of(workload)["spec"]["containers"]
    return container


def refusal(values: dict[str, Any], **options: Any) -> str:
    """Return what Helm says of values that it must refuse."""
    with pytest.raises(helm.HelmError) as caught:
        templates(values, **options)
    return str(caught.value)
