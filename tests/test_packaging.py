"""The wheel holds what a user needs, and its commands work without a checkout around them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# One worker builds the wheel, once.
pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a source distribution, as a release does."""
    output = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = output.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel into a directory that stands in for site-packages."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"],
        cwd=site,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_holds_the_packages_and_the_pack(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        "peerwatch_checks",
        "peerwatch_common",
        "peerwatch_exporter",
        "peerwatch_demo",
        "peerwatch_detector",
        "peerwatch_responder",
        "peerwatch_reliability",
        "peerwatch-0.1.0.data",
        "peerwatch-0.1.0.dist-info",
    }


@pytest.mark.parametrize(
    "path",
    [
        "peerwatch_common/py.typed",
        "peerwatch_common/signatures/healthy.txt",
        "peerwatch_common/signatures/signatures.yaml",
        "peerwatch_checks/py.typed",
        "peerwatch_checks/checks/host/filesystem_space.py",
        "peerwatch_exporter/py.typed",
        "peerwatch_exporter/hook/sitecustomize.py",
        "peerwatch_exporter/hook/peerwatch_spans/__init__.py",
        "peerwatch_exporter/collectors/gpu.py",
        "peerwatch_demo/simulated_node/driver.py",
        "peerwatch_detector/config/presets/dcgm.yaml",
        "peerwatch_detector/config/presets/peerwatch.yaml",
        "peerwatch_detector/web/templates/index.html",
        "peerwatch_detector/web/templates/timeline.svg",
        "peerwatch_responder/run/templates/actions.html",
        "peerwatch_reliability/report/templates/report.html",
        "peerwatch_responder/py.typed",
        "peerwatch_reliability/py.typed",
        "peerwatch-0.1.0.data/data/share/peerwatch/rules/dcgm/dcgm.rules.yaml",
        "peerwatch-0.1.0.data/data/share/peerwatch/rules/node.rules.yaml",
        "peerwatch-0.1.0.data/data/share/peerwatch/dashboards/job.json",
        "peerwatch-0.1.0.dist-info/licenses/LICENSE",
    ],
)
def test_the_wheel_holds(wheel: Path, path: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert path in archive.namelist()


@pytest.mark.parametrize("folder", ["rules", "helm/peerwatch/rules"])
def test_the_source_distribution_holds_the_rules_where_they_are_looked_for(
    wheel: Path, folder: str
) -> None:
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        assert f"peerwatch-0.1.0/{folder}/node.rules.yaml" in archive.getnames()


def test_the_base_install_needs_no_arithmetic(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("peerwatch-0.1.0.dist-info/METADATA").decode()
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    base = {line.split()[1].split(">")[0].split("=")[0] for line in needs if "extra ==" not in line}
    assert base == {"bcrypt", "h11", "nvidia-ml-py", "psutil", "pydantic", "pyyaml"}


@pytest.mark.parametrize(
    "module",
    [
        "peerwatch_exporter",
        "peerwatch_checks",
        "peerwatch_detector",
        "peerwatch_responder",
        "peerwatch_reliability",
    ],
)
def test_the_commands_run_from_the_wheel(installed: Path, module: str) -> None:
    code = (
        f"import runpy; sys.argv = ['{module}', '--version']\n"
        f"runpy.run_module('{module}', run_name='__main__')"
    )
    done = run(installed, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith("0.1.0")


def test_the_installed_detector_is_whole(installed: Path) -> None:
    code = (
        "from peerwatch_detector import config\n"
        "assert config.__file__.startswith(sys.path[0])\n"
        "print(len(config.load_config(None).detection_metrics()))"
    )
    done = run(installed, code)
    assert done.stderr == ""
    assert int(done.stdout) > 10


def test_the_running_exporter_and_detector_load_no_torch(installed: Path) -> None:
    code = (
        "from peerwatch_exporter.process import service\n"
        "heavy = {'numpy', 'torch', 'requests', 'flask'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from peerwatch_detector.service import loop\n"
        "from peerwatch_detector.web import app\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert run(installed, code).stderr == ""


@pytest.fixture(scope="module")
def prefix(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with pip, and return the folder that stands in for /usr or a venv."""
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--no-compile", "--ignore-installed", "--prefix", str(folder), str(wheel)),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def detector(prefix: Path, *arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run the detector of the installed wheel, as if one package were not installed."""
    (site,) = prefix.glob("lib*/python3*/site-packages")
    code = (
        f"if {without!r}: sys.modules[{without!r}] = None\n"
        "from peerwatch_detector.__main__ import main\n"
        f"sys.exit(main({list(arguments)!r}))"
    )
    return run(site, code)


def test_files_of_an_installed_wheel_are_listed_and_copied(prefix: Path, tmp_path: Path) -> None:
    listed = detector(prefix, "files", "rules", without="numpy")
    share = prefix / "share" / "peerwatch"
    assert (0, "") == (listed.returncode, listed.stderr)
    assert str(share / "rules" / "job.rules.yaml") in listed.stdout.splitlines()

    copied = detector(prefix, "files", "--copy", str(tmp_path))

    assert (0, "") == (copied.returncode, copied.stderr)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {
        Path(line) for line in copied.stdout.splitlines()
    }
    for kind, pattern in (("rules", "*.yaml"), ("dashboards", "*.json")):
        source = {p.relative_to(ROOT / kind): p.read_bytes() for p in (ROOT / kind).rglob(pattern)}
        copies = {
            p.relative_to(tmp_path / kind): p.read_bytes()
            for p in (tmp_path / kind).rglob("*")
            if p.is_file()
        }
        assert source == copies


def test_a_wheel_without_its_files_says_so(prefix: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(prefix, bare, ignore=shutil.ignore_patterns("share"))

    done = detector(bare, "files", "dashboards")

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("peerwatch-detector: This installation has no dashboards;")
    assert 1 == len(done.stderr.splitlines())


def test_a_wheels_user_is_told_what_a_wheels_user_can_do(prefix: Path, tmp_path: Path) -> None:
    without_flask = detector(prefix, "run", without="flask").stderr
    no_models = tmp_path / "no_models"
    shutil.copytree(prefix, no_models)
    (models,) = no_models.rglob("default.npz")
    models.unlink()
    missing = detector(no_models, "run").stderr

    assert "-m pip install 'flask>=3' 'jinja2>=3.1' " in without_flask
    assert "The shipped models cannot be used" in missing
    for message in (without_flask, missing):
        assert 1 == len(message.splitlines())
        assert not re.search(r"make |constraints|'\.\[|source", message)
