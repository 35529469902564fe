"""Every check of the registry keeps the contract, whoever wrote it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from peerwatch_checks.__main__ import main
from peerwatch_checks.check import NEEDS, SUITES, Check, checks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "exporter" / "peerwatch_checks" / "checks"
CHECKS = checks()


def test_every_file_is_a_check_of_its_name_and_scope() -> None:
    files = {path for path in FOLDER.glob("*/*.py") if path.name != "__init__.py"}

    assert files == {check.path for check in CHECKS.values()}
    assert [] == [
        check.name
        for check in CHECKS.values()
        if check.path != FOLDER / check.scope / f"{check.name}.py"
    ]


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.name)
def test_a_check_says_what_it_does_and_means(check: Check) -> None:
    for sentence in (check.summary, check.failure):
        assert 10 < len(sentence) <= 120
        assert not sentence.endswith(".")
    assert set(check.suites) <= set(SUITES)
    assert set(check.needs) <= set(NEEDS)
    assert 0 < check.seconds < check.timeout_seconds
    # One that only reads may run in every suite; one that puts load on a node is no configuration.
    assert not (check.active and "config" in check.suites)


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.name)
def test_the_settings_of_a_check_have_defaults_and_meanings(check: Check) -> None:
    check.options()
    assert [] == [n for n, f in check.options.model_fields.items() if not f.description]


def test_checks_are_known_without_loading_what_only_some_need() -> None:
    code = (
        "import sys; from peerwatch_checks.check import checks; checks(); "
        "print({'numpy', 'torch', 'pynvml', 'psutil', 'requests'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "set()" == done.stdout.strip()


def test_the_list_says_what_each_needs_takes_and_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["list"])

    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:6] == ["CHECK", "SCOPE", "SUITES", "NEEDS", "TAKES", "SEVERITY"]
    assert list(CHECKS) == [row.split()[0] for row in rows]
    for check, row in zip(CHECKS.values(), rows, strict=True):
        assert row.endswith(f"{check.summary}; {check.failure}")


def test_a_check_of_the_sites_own_is_a_file_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "license_server.py").write_text(
        "from peerwatch_checks.check import Outcome, register\n"
        "@register('license_server', 'host', 'what it does', failure='what it means',\n"
        "          severity='low', seconds=1, suites=())\n"
        "def run(context):\n"
        "    yield Outcome('pass', 'It answers.')\n"
    )
    code = (
        "import sys; from pathlib import Path; from peerwatch_checks.check import checks; "
        "found = checks([Path(sys.argv[1])])['license_server']; print(found.scope, found.path)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert f"host {tmp_path / 'license_server.py'}" == done.stdout.strip()
