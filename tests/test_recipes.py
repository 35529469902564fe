"""The recipes of CONTRIBUTING.md, followed word for word in a copy of the repository.

``tests/recipes/<recipe>`` holds what is written by hand, under its path in the repository; where a
file is there already, it is added at the end. Files and commands come from the recipe's own steps,
so a recipe that names another file, or a command that no longer does it, fails here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("grafana_foundation_sdk")
pytestmark = pytest.mark.skipif(
    not (Path(__file__).resolve().parents[1] / ".git").exists(),
    reason="what belongs to the repository is known to git only",
)

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "tests" / "recipes"
CODE = re.compile(r"`([^`]+)`")
FOLDERS = tuple(f"{name}/" for name in ("exporter", "detector", "rules", "docs", "tests"))


@dataclass(frozen=True)
class Recipe:
    """What a recipe promises.

    Parameters
    ----------
    heading
        In CONTRIBUTING.md.
    by_hand
        How many files of each kind are written by hand: program and documents, tests.
    narrowed
        What a recipe's test commands are narrowed to, to save time: only what the addition is
        about.
    appears_in
        What the generators must have written, by file.
    """

    heading: str
    by_hand: tuple[int, int]
    narrowed: str
    appears_in: Mapping[str, str]


CASES = {
    "collector": Recipe(
        "Add a collector",
        (1, 1),
        "renders_its_golden or whole_catalogue or lists_every_collector or drawn_or_used"
        " or host_thermal or metrics_named",
        {
            "exporter/README.md": "| `thermal` |",
            "docs/metrics.md": "| `host_thermal_celsius` |",
            "tests/exporter/fixtures/training_host/expected.prom": "thermal_zone0",
            "docs/dashboards.md": "| `host_thermal_celsius` |",
        },
    ),
    "detection_metric": Recipe(
        "Add a detection metric",
        (1, 1),
        "load:tasks or recorded_name or recording_rule_is or no_problem or runbook_tells"
        " or draws_every or half_empty or recording or slow or same_expressions or shipped_metric"
        " or fast_preset",
        {
            "rules/recording.rules.yaml": "record: job_node:load:tasks",
            "rules/slow/slow.rules.yaml": "record: job_node:load:tasks",
            "tests/rules/slow.test.yaml": "job_node:load:tasks",
            "dashboards/job.json": '"title": "Load average"',
            "docs/metrics.md": "| `host_load` |",
            "docs/runbooks/PeerwatchFaultyNode.md": "host_load",
        },
    ),
    "alert": Recipe(
        "Add an alert",
        (2, 1),
        "alert or annotations or expression or runbook or unit_tests_pass and node"
        " or accepts_every",
        {"docs/rules.md": "[PeerwatchHostLoadHigh](runbooks/PeerwatchHostLoadHigh.md) | warning"},
    ),
}


def steps_of(heading: str) -> list[str]:
    """Return the words set as code in the numbered steps of a recipe, in their order."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    steps = re.search(r"^1\. .*?(?=\n\n(?! )|\Z)", section, re.DOTALL | re.MULTILINE)
    assert steps is not None
    return [" ".join(code.split()) for code in CODE.findall(steps[0])]


def is_command(code: str) -> bool:
    return code.startswith(("make ", "pytest "))


def places(codes: list[str]) -> dict[str, re.Pattern[str]]:
    """Return the files and folders a recipe names, as patterns."""
    named = [code for code in codes if code.startswith(FOLDERS) and " " not in code]
    return {
        name: re.compile(re.sub(r"<\w+>", "[^/]+", name) + (".+" if name.endswith("/") else ""))
        for name in named
    }


def git(copy: Path, *arguments: str) -> str:
    identity = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@localhost",
        "-c",
        "core.autocrlf=false",
    ]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=copy, check=True, capture_output=True, text=True
    ).stdout


def changed_in(copy: Path) -> set[str]:
    status = git(copy, "status", "--porcelain", "--untracked-files=all", "-z")
    return {entry[3:] for entry in status.split("\0") if entry}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what the repository holds, as a repository of its own."""
    copy = tmp_path / "peerwatch"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() or source.exists():
            shutil.copy2(source, target, follow_symlinks=False)
    git(copy, "init", "-q")
    git(copy, "add", "-A", "-f")
    git(copy, "commit", "-q", "-m", "before")
    # What was compiled here counts there too: the files are as old. To compile
    # it all anew is a quarter of the work.
    for folder in {Path(name).parent / "__pycache__" for name in names.split("\0")}:
        for compiled in (ROOT / folder).glob("*.pyc"):
            (copy / folder).mkdir(exist_ok=True)
            shutil.copy2(compiled, copy / folder)
    return copy


def run(copy: Path, command: str, narrowed: str) -> None:
    """Run a command of a recipe in the copy, with this interpreter and without any set-up."""
    program, *arguments = shlex.split(command)
    if program == "make":
        arguments = ["-o", "setup-test", *arguments]
    else:
        only = [] if "-k" in arguments else ["-k", narrowed]
        program = sys.executable
        arguments = ["-m", "pytest", *arguments, "-p", "no:cacheprovider", "-q", *only]
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(str(copy / name) for name in ("exporter", "detector")),
    }
    for name in ("PYTEST_XDIST_WORKER", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    result = subprocess.run(
        [program, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout[-6000:]}\n{result.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_recipe_works_as_it_is_written(name: str, copy: Path) -> None:
    recipe, folder = CASES[name], RECIPES / name
    codes = steps_of(recipe.heading)
    commands = [code for code in codes if is_command(code)]
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    # The recipe names every file, and no other.
    for file in written:
        assert [place for place, pattern in places(codes).items() if pattern.fullmatch(file)], file
    for place, pattern in places(codes).items():
        assert any(pattern.fullmatch(file) for file in written), place
    tests = {file for file in written if file.startswith("tests/")}
    assert recipe.by_hand == (len(written - tests), len(tests))
    assert any(command.startswith("pytest ") for command in commands)

    for file in written:
        target = copy / file
        target.parent.mkdir(parents=True, exist_ok=True)
        before = target.read_text() if target.exists() else ""
        target.write_text(before + (folder / file).read_text())
    assert written == changed_in(copy)
    for command in commands:
        run(copy, command, recipe.narrowed)
    for file, text in recipe.appears_in.items():
        assert text in (copy / file).read_text(), file
        assert file in changed_in(copy) - written

    # Everything that is generated is up to date.
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "after")
    run(copy, "make generate", "")
    assert set() == changed_in(copy)


@pytest.mark.parametrize("name", CASES)
def test_the_recipe_says_how_many_files_it_takes(name: str) -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split(f"\n## {CASES[name].heading}\n", 1)[1]
    first = section.strip().split("\n\n", 1)[0]
    words = {1: "one", 2: "two", 3: "three"}
    program, tests = CASES[name].by_hand
    assert f"By hand: {words[program]} file{'s' if program > 1 else ''}" in first
    assert tests == 1
