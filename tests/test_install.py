"""What docs/install.md tells to use fits: images, units, scripts, the compose file."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from peerwatch_demo.exporter import make_parser as simulated_parser
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_demo.stack.servers import find_program
from peerwatch_detector.command_line import parser as detector_parser
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.config import load_config as load_detector_config
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.process.command_line import parse as parse_exporter
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.load import load_config as load_exporter_config
from peerwatch_exporter.sources.jobs.mapping import read_mapping

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "install.md"
COMPOSE = ROOT / "docs" / "compose"
SLURM = ROOT / "docs" / "slurm"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROGRAMS = {"exporter": ExporterConfig().listen.port, "detector": DetectorConfig().listen.port}


def blocks(name: str) -> list[str]:
    """Return the YAML blocks of the document that begin with the name of a file."""
    found = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return [text for text in found if text.startswith(f"# {name}\n")]


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    text = re.sub(
        r"\\\n", " ", re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    )
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def arguments(dockerfile: Path, name: str) -> list[str]:
    return [rest for word, rest in instructions(dockerfile) if word == name]


def test_mimirs_limit_of_rules_is_that_of_the_largest_group():
    groups = [
        (len(group["rules"]), group["name"])
        for path in (ROOT / "rules").rglob("*.rules.yaml")
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    rules, name = max(groups)
    (limit,) = re.findall(r"`ruler_max_rules_per_rule_group` to (\d+)", DOCUMENT.read_text())

    assert str(rules) == limit
    assert f"`{name}`" in DOCUMENT.read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_image_is_built_from_what_the_wheel_is_made_of(program):
    dockerfile = ROOT / program / "Dockerfile"
    own = [rest.split() for rest in arguments(dockerfile, "COPY") if not rest.startswith("--from")]
    copied = {source for sources in own for source in sources[:-1]}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        *(Path(package).parts[0] for package in wheel["packages"]),
        *wheel["shared-data"],
        *PROJECT["project"]["license-files"],
        *("pyproject.toml", PROJECT["project"]["readme"], "constraints.txt"),
    }

    assert needed == copied
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize(
    ("program", "extra"), [("exporter", "kubernetes"), ("detector", "detector")]
)
def test_an_image_runs_its_program_as_nobody(program, extra):
    dockerfile = ROOT / program / "Dockerfile"
    bases = [rest.split()[0] for rest in arguments(dockerfile, "FROM")]
    (installed,) = [rest for rest in arguments(dockerfile, "RUN") if "pip install" in rest]

    assert 1 == len(set(bases))
    assert re.fullmatch(r"python:3\.1[1-9]-slim", bases[0])
    assert f"-c constraints.txt '.[{extra}]'" in installed
    assert extra in PROJECT["project"]["optional-dependencies"]
    assert ["65534:65534"] == arguments(dockerfile, "USER")
    assert [str(PROGRAMS[program])] == arguments(dockerfile, "EXPOSE")
    assert [f'["peerwatch-{program}"]'] == arguments(dockerfile, "ENTRYPOINT")
    assert f"peerwatch-{program}" in PROJECT["project"]["scripts"]


def test_the_exporters_image_has_other_packages_only_if_they_are_asked_for():
    dockerfile = ROOT / "exporter" / "Dockerfile"
    (installs,) = [rest for rest in arguments(dockerfile, "RUN") if "apt-get install" in rest]

    assert ['PACKAGES=""'] == arguments(dockerfile, "ARG")
    assert installs.startswith('if [ -n "$PACKAGES" ]; then')
    assert "--build-arg PACKAGES=rdmacm-utils" in (ROOT / "docs" / "pings.md").read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_check_of_an_image_is_python(program):
    (check,) = arguments(ROOT / program / "Dockerfile", "HEALTHCHECK")
    command = json.loads(check.split("CMD ", 1)[1])

    assert ["python", "-c"] == command[:2]
    compile(command[2], "HEALTHCHECK", "exec")
    assert str(PROGRAMS[program]) in command[2]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_unit_starts_its_program_without_rights(program):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(ROOT / program / f"peerwatch-{program}.service")
    service = unit["Service"]
    command, *rest = shlex.split(service["ExecStart"])
    parse = {"exporter": parse_exporter, "detector": detector_parser().parse_args}[program]

    assert ["Unit", "Service", "Install"] == unit.sections()
    assert f"/usr/bin/peerwatch-{program}" == command
    assert f"{program}.yaml" == parse(rest).config.name
    assert ("yes", "yes", "strict") == tuple(
        service[key] for key in ("DynamicUser", "NoNewPrivileges", "ProtectSystem")
    )


def test_the_unit_of_the_exporter_lets_the_sampler_step_back():
    text = (ROOT / "exporter" / "peerwatch-exporter.service").read_text()
    _, denied, *allowed = re.findall(r"^SystemCallFilter=(.*)$", text, re.MULTILINE)

    # systemd takes them in their order; os.nice is setpriority, one of @resources.
    assert "@resources" in denied.removeprefix("~").split()
    assert "setpriority" in allowed


def test_the_unit_of_the_detector_lets_numba_work():
    text = (ROOT / "detector" / "peerwatch-detector.service").read_text()

    assert not re.search(r"^MemoryDenyWriteExecute", text, re.MULTILINE)
    (folder,) = re.findall(r"^CacheDirectory=(.*)$", text, re.MULTILINE)
    assert f"Environment=NUMBA_CACHE_DIR=/var/cache/{folder}\n" in text
    (credential,) = re.findall(r"^LoadCredential=(\S+):", text, re.MULTILINE)
    assert f"${{CREDENTIALS_DIRECTORY}}/{credential}" in text


def services() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((COMPOSE / "docker-compose.yaml").read_text())["services"]


def test_every_file_that_compose_mounts_exists():
    for name, service in services().items():
        for volume in service.get("volumes", []):
            source, target, mode = volume.split(":")
            assert (COMPOSE / source).exists(), f"{name}: {source}"
            assert "ro" == mode
            assert target.startswith("/")


def test_compose_builds_the_images_of_the_repository():
    built = {
        service["image"]: service["build"] for service in services().values() if "build" in service
    }

    assert {"peerwatch-exporter", "peerwatch-detector"} == set(built)
    for build in built.values():
        assert ROOT == (COMPOSE / build["context"]).resolve()
        assert (ROOT / build["dockerfile"]).exists()


def test_what_compose_takes_from_others_has_a_version():
    images = [service["image"] for service in services().values() if "build" not in service]

    assert 3 == len(images)
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)


def test_ports_of_compose_are_free_of_each_other_and_on_the_loopback():
    ports = [port for service in services().values() for port in service.get("ports", [])]

    assert len(set(ports)) == len(ports)
    assert all(port.startswith("127.0.0.1:") for port in ports)
    header = (COMPOSE / "docker-compose.yaml").read_text().split("name:")[0]
    assert {port.split(":")[1] for port in ports} == set(re.findall(r"localhost:(\d+)", header))


def test_one_of_the_made_up_nodes_breaks():
    nodes = [service for name, service in services().items() if name.startswith("node-")]
    assert all(["python", "-m", "peerwatch_demo.exporter"] == node["entrypoint"] for node in nodes)
    parsed = [simulated_parser().parse_known_args(node["command"]) for node in nodes]
    options = [node for node, _ in parsed]

    assert all(parse_exporter(flags) for _, flags in parsed)
    assert {"healthy", "pfc_storm"} == {node.scenario for node in options} <= set(SCENARIOS)
    assert 1 == sum(node.scenario != "healthy" for node in options)
    assert list(range(len(nodes))) == [node.seed for node in options]
    # More than two others: with three nodes all must be outside of the others' range.
    assert len(nodes) >= DetectorConfig().min_nodes + 1


def test_compose_starts_prometheus_with_targets_that_are_services(tmp_path):
    config = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())
    known = set(services())
    targets = [
        target
        for job in config["scrape_configs"]
        for static_config in job["static_configs"]
        for target in static_config["targets"]
    ]
    (alertmanager,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]

    assert {name for name in known if name.startswith("node-")} | {"detector"} == {
        target.split(":")[0] for target in targets
    }
    assert "alertmanager:9093" == alertmanager
    assert ["/etc/prometheus/rules/*.rules.yaml"] == config["rule_files"]
    config["rule_files"] = [str(ROOT / "rules" / "*.rules.yaml")]
    check_prometheus(config, tmp_path)


def check_prometheus(config: dict[str, Any], folder: Path) -> None:
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [find_program("promtool"), "check", "config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


def test_the_alertmanager_of_compose_takes_its_configuration():
    (source,) = [volume.split(":")[0] for volume in services()["alertmanager"]["volumes"]]
    command = [find_program("amtool"), "check-config", str((COMPOSE / source).resolve())]

    subprocess.run(command, check=True, capture_output=True)


def test_the_detector_of_compose_reads_its_prometheus():
    config = load_detector_config(COMPOSE / "detector.yaml")
    options = detector_parser().parse_args(services()["detector"]["command"])

    assert "http://prometheus:9090" == config.prometheus.url
    assert str(PROGRAMS["detector"]) == options.listen.rpartition(":")[2]
    assert ["/tmp"] == services()["detector"]["tmpfs"]


def test_grafana_finds_prometheus_and_the_dashboards():
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasource.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())["providers"]
    mounts = dict(volume.split(":")[1::-1] for volume in services()["grafana"]["volumes"])

    assert "http://prometheus:9090" == source["url"]
    folder = (COMPOSE / mounts[provider["options"]["path"]]).resolve()
    assert ROOT / "dashboards" == folder


def slurm(script: str, folder: Path, **environment: str) -> str:
    """Run a script as slurmd does."""
    done = subprocess.run(
        [str(SLURM / script)],
        env={"PATH": os.environ["PATH"], "PEERWATCH_JOBS": str(folder), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stderr
    return done.stdout


def test_prolog_and_epilog_name_the_jobs_of_each_gpu(tmp_path):
    folder = tmp_path / "jobs"
    slurm("prolog.sh", folder, SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0,1")
    slurm("prolog.sh", folder, SLURM_JOB_ID="47", SLURM_JOB_GPUS="1")
    both = read_mapping(folder)
    slurm("epilog.sh", folder, SLURM_JOB_ID="4711")
    remaining = read_mapping(folder)
    slurm("epilog.sh", folder, SLURM_JOB_ID="47")
    free = read_mapping(folder)

    assert {0: ("4711",), 1: ("4711", "47")} == both.gpus
    assert {0: (), 1: ("47",)} == remaining.gpus
    assert {0: (), 1: ()} == free.gpus
    assert () == both.problems + remaining.problems + free.problems


def test_a_job_without_gpus_is_one_of_the_node(tmp_path):
    slurm("prolog.sh", tmp_path, SLURM_JOB_ID="9")

    assert ("9",) == read_mapping(tmp_path).node


def test_prolog_and_epilog_do_not_fail_where_nothing_is_known(tmp_path):
    slurm("prolog.sh", tmp_path / "none")
    slurm("epilog.sh", tmp_path / "none", SLURM_JOB_ID="")

    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_a_folder_that_cannot_be_written_takes_no_node_out_of_service(script):
    place = {"PEERWATCH_JOBS": "/proc/self", "SLURM_JOB_ID": "9"}
    done = subprocess.run(
        [str(SLURM / script)], env=os.environ | place, capture_output=True, check=False
    )

    assert 0 == done.returncode


def test_an_epilog_that_cannot_write_loses_no_other_job(tmp_path):
    folder, programs = tmp_path / "jobs", tmp_path / "programs"
    slurm("prolog.sh", folder, SLURM_JOB_ID="4711")
    programs.mkdir()
    # As grep ends on a full disk.
    (programs / "grep").write_text("#!/bin/sh\nexit 2\n")
    (programs / "grep").chmod(0o755)

    slurm("epilog.sh", folder, SLURM_JOB_ID="9", PATH=f"{programs}:{os.environ['PATH']}")

    assert ("4711",) == read_mapping(folder).node
    assert {".lock", "node"} == {file.name for file in folder.iterdir()}


def test_the_task_prolog_gives_tasks_the_hook(tmp_path):
    program = tmp_path / "peerwatch-exporter"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m peerwatch_exporter "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    # As the task's own, which stays behind the hook.
    own = os.pathsep.join(sys.path)
    said = dict(
        line.removeprefix("export ").split("=", 1)
        for line in slurm("task-prolog.sh", tmp_path, PATH=path, PYTHONPATH=own).splitlines()
    )

    assert "/run/peerwatch/heartbeat" == said["PEERWATCH_HEARTBEAT_DIR"]
    hook, _, rest = said["PYTHONPATH"].partition(":")
    assert (Path(hook) / "sitecustomize.py").exists()
    assert own == rest


def test_without_the_exporter_the_task_prolog_says_nothing(tmp_path):
    assert "" == slurm("task-prolog.sh", tmp_path, PATH="/usr/bin:/bin")


def test_directories_made_at_boot_are_those_that_the_settings_name():
    made = re.findall(r"^d (\S+)", (SLURM / "tmpfiles.conf").read_text(), re.MULTILINE)
    (settings,) = [yaml.safe_load(text) for text in blocks("exporter.yaml")]

    assert settings["heartbeat"]["directory"] in made
    assert settings["jobs"]["mapping_directory"] in made


def test_the_list_of_nodes_is_what_prometheus_reads(tmp_path):
    (command,) = re.findall(r"^    (sinfo .*)$", DOCUMENT.read_text(), re.MULTILINE)
    fake = tmp_path / "sinfo"
    fake.write_text("#!/bin/sh\nprintf 'gpu002\\ngpu001\\ngpu002\\n'\n")
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert [{"targets": ["gpu001:9400", "gpu002:9400"]}] == json.loads(done.stdout)


def test_settings_of_the_document_are_settings(tmp_path):
    path = tmp_path / "settings.yaml"
    for text in blocks("exporter.yaml"):
        path.write_text(text)
        load_exporter_config(path, listen=None, known_collectors=registrations())
    urls = []
    for text in blocks("detector.yaml"):
        path.write_text(text)
        urls.append(load_detector_config(path).prometheus.url)

    assert 3 == len(set(urls))


def test_the_configuration_of_prometheus_is_one(tmp_path):
    (text,) = blocks("prometheus.yaml")
    config = yaml.safe_load(text)
    ports = re.findall(r":(\d{4})\b", text + DOCUMENT.read_text())

    assert {str(port) for port in PROGRAMS.values()} <= set(ports)
    (tmp_path / "nodes.json").write_text("[]")
    config["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(tmp_path / "nodes.json")]}]
    config["rule_files"] = [str(ROOT / "rules" / "*.rules.yaml")]
    check_prometheus(config, tmp_path)


def test_files_that_commands_of_the_document_name_exist():
    code = "\n".join(re.findall(r"^    (.*)$", DOCUMENT.read_text(), re.MULTILINE))
    named = set(re.findall(r"(?<![/\w])((?:docs|exporter|detector|helm|rules)/[\w./-]+)", code))

    assert {"exporter/Dockerfile", "docs/slurm/tmpfiles.conf", "helm/peerwatch"} <= named
    assert [] == [name for name in sorted(named) if not (ROOT / name).exists()]


def test_the_readme_installs_as_a_distribution_lets_it():
    # Debian and Ubuntu refuse pip outside of a virtual environment; torch needs its constraint.
    text = (ROOT / "README.md").read_text() + (ROOT / "detector" / "README.md").read_text()
    first, *_ = re.findall(r"^    (.*pip install .*|.*-m venv .*)$", text, re.MULTILINE)
    heavy = re.findall(r"pip install (?:(-c constraints\.txt) )?'\.\[(detector|train)\]'", text)

    assert "-m venv" in first
    assert {("-c constraints.txt", "detector"), ("-c constraints.txt", "train")} == set(heavy)
