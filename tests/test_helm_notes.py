"""What `helm install` prints: the images to build, and what is left to do."""

from __future__ import annotations

import re

import pytest
import yaml

from helm_chart import (
    CASES,
    CHART,
    ROOT,
    case_objects,
    container_of,
    notes_of,
    of_kind,
    values_of,
)

WORKLOADS = ("DaemonSet", "StatefulSet")


@pytest.mark.parametrize("case", CASES)
def test_the_notes_name_what_is_left_to_do(case):
    notes = notes_of(values_of(case))
    rendered = case_objects(case)
    names = {manifest["metadata"]["name"] for manifest in rendered}

    named = set(re.findall(r"(?:daemonset |daemonset/|service/)(\S+)", notes))
    assert named <= names
    monitors = of_kind(rendered, "PodMonitor") + of_kind(rendered, "ServiceMonitor")
    watched = {monitor["metadata"]["labels"]["app.kubernetes.io/component"] for monitor in monitors}
    for component in ("exporter", "detector", "responder", "reliability"):
        workloads = [kind for kind in WORKLOADS if of_kind(rendered, kind, component)]
        unwatched = bool(workloads) and component not in watched
        assert unwatched == (f"{component}.monitor.kind" in notes)
    assert ("no rules yet" in notes) == (not of_kind(rendered, "PrometheusRule"))


@pytest.mark.parametrize("case", CASES)
def test_the_notes_build_the_images_that_the_pods_run(case):
    notes = notes_of(values_of(case))
    images = {
        workload["metadata"]["labels"]["app.kubernetes.io/component"]: container_of(workload)[
            "image"
        ]
        for workload in case_objects(case)
        # The checks are in the exporter's image, responder and reliability in the detector's.
        if workload["kind"] in ("DaemonSet", "StatefulSet")
        and not workload["metadata"]["name"].endswith(("-checks", "-responder", "-reliability"))
    }
    built = dict(re.findall(r"docker build -f (\w+)/Dockerfile -t (\S+) \.$", notes, re.MULTILINE))

    # A digest is known only after the push.
    appended = f":{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    assert {program: re.sub(r"@.*", appended, image) for program, image in images.items()} == built
    assert all((ROOT / program / "Dockerfile").is_file() for program in built)
    pushed = re.findall(r"docker push (\S+)$", notes, re.MULTILINE)
    named = bool(values_of(case).get("image", {}).get("registry"))
    assert (list(built.values()) if named else []) == pushed
    assert named == ("set image.registry" not in notes)


def test_a_repository_may_name_the_registry():
    values = {"exporter": {"image": {"repository": "localhost:5000/exporter"}}}
    notes = notes_of(values)

    assert "docker push localhost:5000/exporter:" in notes
    assert "look for peerwatch-detector:" in notes


@pytest.mark.parametrize(
    ("where", "warned"),
    [
        ({}, True),
        ({"nodeSelector": {"nvidia.com/gpu.present": "true"}}, False),
        ({"affinity": {"nodeAffinity": {}}}, False),
    ],
    ids=["all nodes", "selected", "affinity"],
)
def test_the_notes_warn_of_a_runtime_that_not_all_nodes_have(where, warned):
    values = {"exporter": {"runtimeClassName": "nvidia"} | where}
    notes = notes_of(values)

    assert warned == ("set exporter.nodeSelector" in notes)
