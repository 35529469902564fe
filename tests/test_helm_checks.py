"""The chart's checks of nodes: what they are told, what they do, and where their results go."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from helm_chart import ROOT, case_objects, container_of, objects, of_kind, only, pod_of, refusal
from peerwatch_checks.process.command_line import parse
from peerwatch_checks.settings.load import load_settings
from peerwatch_exporter.settings.config import ExporterConfig

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = (ROOT / "docs" / "checks.md").read_text()


def pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the pod that tests a node."""
    rendered = case_objects("checks") if values is None else objects({"checks": values})
    return pod_of(only(rendered, "DaemonSet", "checks"))["spec"]


def mounts(spec: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}


def test_no_node_is_tested_by_default() -> None:
    rendered = case_objects("default")

    assert [] == of_kind(rendered, "DaemonSet", "checks") + of_kind(rendered, "ConfigMap", "checks")
    assert "checks" not in mounts(pod_of(only(rendered, "DaemonSet"))["spec"])


@pytest.mark.parametrize("filesystems", [True, False])
def test_the_program_takes_its_settings_and_finds_what_is_mounted(
    tmp_path: Path, filesystems: bool
) -> None:
    values = {"enabled": True, "filesystems": filesystems, "config": {"exclude": ["cpu_compute"]}}
    rendered = objects({"checks": values})
    path = tmp_path / "checks.yaml"
    path.write_text(only(rendered, "ConfigMap", "checks")["data"]["checks.yaml"])
    config = load_settings(path).config
    there = mounts(pod(values))

    assert (there["proc"], there["sys"]) == (str(config.paths.procfs), str(config.paths.sysfs))
    assert there["results"] == str(config.spool) == str(config.paths.lock.parent)
    assert there["work"] == str(config.paths.work)
    assert there.get("root", "/") == str(config.paths.rootfs)
    untested = set() if filesystems else {"filesystem_space", "mounts"}
    assert {"cpu_compute"} | untested == set(config.exclude)


def test_the_exporter_reads_what_the_checks_write() -> None:
    rendered = objects({"checks": {"enabled": True, "directory": "/data/checks"}})
    exporter = pod_of(only(rendered, "DaemonSet", "exporter"))["spec"]
    (mount,) = [
        each for each in exporter["containers"][0]["volumeMounts"] if each["name"] == "checks"
    ]
    of_node = [
        volume["hostPath"]["path"]
        for spec in (exporter, pod({"enabled": True, "directory": "/data/checks"}))
        for volume in spec["volumes"]
        if volume["name"] in ("checks", "results")
    ]

    assert str(ExporterConfig().paths.checks) == mount["mountPath"]
    assert mount["readOnly"] is True
    assert ["/data/checks", "/data/checks"] == of_node


def test_a_pod_knows_itself_and_its_node() -> None:
    fields = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in pod()["containers"][0]["env"]
        if "valueFrom" in each
    }

    assert {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"} == fields


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"config": {"spool": "/mine"}}, "checks.config.spool: is set by the chart; use checks.d"),
        ({"config": {"paths": {}}}, "checks.config.paths: is set by the chart"),
        ({"config": {"bussy": {}}}, "additional properties 'bussy' not allowed"),
        ({"intervalSeconds": 5}, "minimum: got 5, want 60"),
        ({"suites": []}, "minItems"),
        ({"podAnnotations": {"checksum/config": "a"}}, "checks.podAnnotations: checksum/config"),
        ({"resources": {"limits": {"memory": "lots"}}}, "checks.resources.limits.memory"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_mistakes_are_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal({"checks": {"enabled": True} | values})


def test_the_pod_tests_again_and_again_and_ends_with_the_check_that_runs(tmp_path: Path) -> None:
    container = container_of(only(case_objects("checks"), "DaemonSet", "checks"))
    log = tmp_path / "log"
    # The third run hangs until it is asked to end.
    fake = f"""#!/bin/sh
    echo "$@" >>{log}
    [ "$(wc -l <{log})" -lt 3 ] && exit 3
    trap 'echo ended >>{log}; exit 0' TERM
    while :; do /bin/sleep 0.1; done
    """
    for name, text in (("peerwatch-check", fake), ("sleep", "#!/bin/sh\nexit 0\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    process = subprocess.Popen(
        [*container["command"], *container["args"]],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "INTERVAL_SECONDS": "60"},
        start_new_session=True,
    )
    try:
        for _ in range(6000):
            if log.exists() and len(log.read_text().splitlines()) == 3:
                break
            time.sleep(0.02)
        # The trap of the fake program is set a moment after its line.
        while "ended" not in log.read_text():
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert process.poll() in (None, 0)
            if process.poll() is not None:
                break
        status = process.wait(300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    words = "config light --config /etc/peerwatch/checks.yaml"
    assert 0 == status
    assert [words] * 3 == log.read_text().splitlines()[:3]
    assert ["config", "light"] == parse(words.split()[:2]).what


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_takes_what_the_document_shows(version: str) -> None:
    shown = dict(re.findall(r"```yaml\n# an? (init container|job)\n(.*?)```", DOCUMENT, re.DOTALL))
    job = yaml.safe_load(shown["job"])
    inside = job["spec"]["template"]["spec"]
    commands = [container["command"][1:] for container in inside["containers"]]
    inside["initContainers"] = [yaml.safe_load(shown["init container"])]
    commands.append(inside["initContainers"][0]["command"][1:])

    assert version == kubernetes_validate.validate(job, version, strict=True)
    assert ["manual", "health"] == [parse(command).mode for command in commands]


def test_the_chart_takes_what_the_document_shows() -> None:
    (shown,) = re.findall(r"```yaml\n# values\.yaml\n(.*?)```", DOCUMENT, re.DOTALL)

    assert of_kind(objects(yaml.safe_load(shown)), "DaemonSet", "checks")
