"""The set-up says in one line what it needs and cannot get."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = "/usr/share/prometheus/alertmanager"
_TOOLS = (
    *("cat", "cp", "dirname", "find", "flock", "head", "id", "install", "mkdir", "mktemp"),
    *("mv", "rm", "sh", "sha256sum", "sleep", "tail", "touch"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a directory with just what the set-up reads."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "setup", tmp_path / ".ci" / "setup")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    code = tmp_path / "detector" / "peerwatch_detector" / "peers.py"
    code.parent.mkdir(parents=True)
    code.touch()
    return tmp_path


def run_setup(
    checkout: Path, programs: dict[str, str], *, what: str = "demo", **variables: str
) -> tuple[int, str]:
    """Run the set-up with nothing but these programs and the shell's own tools."""
    path = checkout / "bin"
    path.mkdir()
    for tool in _TOOLS:
        if tool not in programs:
            (path / tool).symlink_to(shutil.which(tool) or tool)
    for name, script in programs.items():
        (path / name).write_text(f"#!/bin/sh\n{script}\n")
        (path / name).chmod(0o755)
    done = subprocess.run(
        [str(checkout / ".ci" / "setup"), *what.split()],
        env={"PATH": str(path), "HOME": str(checkout), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def set_up_again(checkout: Path) -> None:
    """Run the set-up with the programs of before."""
    subprocess.run(
        [str(checkout / ".ci" / "setup"), "demo"],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        check=True,
        capture_output=True,
        timeout=300,
    )


# A python3 that has everything: a virtual environment of its makes a python that installs.
GOOD_PYTHON = """
case "$*" in
*"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
*"-m pip install"*) echo "$*" >>installed ;;
*"peerwatch_detector prepare"*) echo "$*" >>compiled ;;
-V) echo Python 3.12.0 ;;
esac
"""
SERVERS = dict.fromkeys(("prometheus", "promtool", "alertmanager", "amtool"), "exit 0")


def test_no_python_is_said(checkout: Path) -> None:
    code, said = run_setup(checkout, {})

    assert (1, 1) == (code, len(said.splitlines()))
    assert "no python3 on PATH" in said


def test_an_old_python_is_named_with_its_version(checkout: Path) -> None:
    old = 'case "$1" in -V) echo Python 3.9.2 ;; *) exit 1 ;; esac'

    code, said = run_setup(checkout, {"python3": old})

    assert (1, 1) == (code, len(said.splitlines()))
    assert "needs Python 3.11 or newer; python3 is Python 3.9.2" in said


def test_a_python_without_venv_says_what_to_install(checkout: Path) -> None:
    no_venv = """
    case "$*" in
    *ensurepip*) exit 1 ;;
    *version_info\\[*) echo 3.12 ;;
    esac
    """

    code, said = run_setup(checkout, {"python3": no_venv, "id": "echo 1000", **SERVERS})

    assert (1, 1) == (code, len(said.splitlines()))
    assert "apt-get install python3.12-venv" in said


def built_with(arguments: str, prefix: str = "/opt") -> str:
    """Return a python3 that is asked how it was built, and has everything."""
    asked = f"""
import sys, sysconfig
sysconfig.get_config_var = lambda name: {arguments!r}
sys.prefix = sys.base_prefix = {prefix!r}
code = sys.argv.pop(1)
exec(code)"""
    return f"""case "$*" in
*ensurepip*) exec {sys.executable} -c {shlex.quote(asked)} "$2" "$3" ;;
esac
{GOOD_PYTHON}"""


@pytest.mark.parametrize(
    ("first", "second", "variables", "taken"),
    [
        ("--prefix=/opt", "--enable-optimizations --with-lto", {}, "second"),
        ("--enable-optimizations", "--enable-optimizations", {}, "first"),
        ("--prefix=/opt", "--prefix=/opt", {}, "first"),
        ("--prefix=/opt", "/usr", {}, "second"),
        ("--prefix=/opt", "--enable-optimizations", {"PYTHON": "python3"}, "first"),
    ],
)
def test_a_python_that_was_built_with_optimizations_is_preferred(
    checkout: Path, first: str, second: str, variables: dict[str, str], taken: str
) -> None:
    other = checkout / "second"
    other.mkdir()
    prefix = second if second == "/usr" else "/opt"
    (other / "python3").write_text(f"#!/bin/sh\n# second\n{built_with(second, prefix)}")
    (other / "python3").chmod(0o755)
    path = {"PATH": f"{checkout / 'bin'}:{other}"}

    code, said = run_setup(checkout, {"python3": built_with(first), **SERVERS}, **path, **variables)

    assert 0 == code, said
    made_of = (checkout / ".venv" / "bin" / "python").read_text()
    assert taken == ("second" if "# second" in made_of else "first")


def test_a_virtual_environment_stands_for_the_python_that_it_was_made_with(
    checkout: Path,
) -> None:
    base = checkout / "base"
    base.mkdir()
    (base / "python3").write_text(f"#!/bin/sh\n# base\n{GOOD_PYTHON}")
    (base / "python3").chmod(0o755)
    active = f"""
import sys, sysconfig
sysconfig.get_config_var = lambda name: "--enable-optimizations"
sys._base_executable = {str(base / "python3")!r}
exec(sys.argv.pop(1))"""
    python = f"""case "$*" in
*ensurepip*) exec {sys.executable} -c {shlex.quote(active)} "$2" "$3" ;;
*) exit 1 ;;
esac"""

    code, said = run_setup(checkout, {"python3": python, **SERVERS})

    assert 0 == code, said
    assert "# base" in (checkout / ".venv" / "bin" / "python").read_text()


def test_packages_are_installed_once_and_again_when_the_project_changes(checkout: Path) -> None:
    programs = {"python3": GOOD_PYTHON, **SERVERS}
    first, _ = run_setup(checkout, programs)
    installed = checkout / "installed"
    lines = [len(installed.read_text().splitlines())]

    def again() -> int:
        set_up_again(checkout)
        return len(installed.read_text().splitlines())

    lines.append(again())
    (checkout / "constraints.txt").write_text("torch==2.99\n")
    lines.append(again())

    assert 0 == first
    assert [2, 2, 3] == lines  # pip itself and the packages; nothing; the packages


def test_functions_are_compiled_once_and_again_when_the_code_changes(checkout: Path) -> None:
    run_setup(checkout, {"python3": GOOD_PYTHON, **SERVERS})
    compiled, code = checkout / "compiled", checkout / "detector" / "peerwatch_detector"
    lines = [len(compiled.read_text().splitlines())]
    for name in (None, "new.py"):
        if name is not None:
            (code / name).touch()
            later = (checkout / ".venv" / "compiled").stat().st_mtime + 1
            os.utime(code / name, (later, later))
        set_up_again(checkout)
        lines.append(len(compiled.read_text().splitlines()))

    assert [1, 1, 2] == lines


def test_without_servers_and_apt_it_says_what_is_missing(checkout: Path) -> None:
    code, said = run_setup(checkout, {"python3": GOOD_PYTHON})

    assert 1 == code
    assert "amtool are not all on PATH" in said.splitlines()[-1]


def test_only_the_benchmarks_need_node_exporter(checkout: Path) -> None:
    programs = {"python3": GOOD_PYTHON, **SERVERS}

    code, said = run_setup(checkout, programs, what="bench")

    assert 1 == code
    assert "node_exporter are not all on PATH" in said.splitlines()[-1]
    (checkout / "bin" / "node_exporter").write_text("#!/bin/sh\n")
    (checkout / "bin" / "node_exporter").chmod(0o755)
    done = subprocess.run(
        [str(checkout / ".ci" / "setup"), "bench"],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        check=False,
        timeout=300,
    )
    assert 0 == done.returncode
    assert "--group dev" in (checkout / "installed").read_text()


# An apt that has all packages, and a dpkg-deb that breaks off half-way through the second.
APT = """
for word in "$@"; do case $word in prometheus*) touch "$word.deb" ;; esac; done
"""
DPKG = """
mkdir -p "$3/usr/bin"
for name in prometheus promtool amtool prometheus-alertmanager; do
    printf '#!/bin/sh\\n' >"$3/usr/bin/$name" && chmod 755 "$3/usr/bin/$name"
done
[ -e complete ] || { echo broken archive >&2; exit 2; }
"""


def test_packages_that_were_unpacked_in_part_are_fetched_again(
    checkout: Path, fetching: dict[str, str]
) -> None:
    (checkout / "complete").unlink()
    code, said = run_setup(checkout, fetching)
    assert (1, True) == (code, "could not be unpacked" in said)
    assert not (checkout / ".tools/usr").exists()

    (checkout / "complete").touch()
    set_up_again(checkout)
    assert (checkout / ".tools/usr/bin/prometheus").exists()


@pytest.fixture
def fetching(checkout: Path) -> dict[str, str]:
    """Return programs with which packages are fetched; the templates are there."""
    (checkout / "complete").touch()
    templates = checkout / "share"
    templates.mkdir()
    for name in ("default.tmpl", "email.tmpl"):
        (templates / name).touch()
    setup = checkout / ".ci" / "setup"
    setup.write_text(setup.read_text().replace(f"={TEMPLATES}\n", f"={templates}\n"))
    asked = 'echo "$*" >>../../asked\n'
    return {
        "python3": GOOD_PYTHON,
        "id": "echo 1000",
        "chmod": 'exec /bin/chmod "$@"',
        "apt-get": asked + APT,
        "dpkg-deb": DPKG,
    }


def test_one_set_up_leaves_another_what_it_fetched(
    checkout: Path, fetching: dict[str, str]
) -> None:
    there = checkout / ".tools/usr/bin"
    there.mkdir(parents=True)
    (there / "prometheus-node-exporter").touch()
    (there / "half-a-program").touch()
    for name in ("slurm", "accounting"):
        (checkout / ".tools" / name / "usr").mkdir(parents=True)

    code, _ = run_setup(checkout, fetching, what="demo")

    assert code == 0
    assert (checkout / ".tools/usr/bin/prometheus").exists()
    assert not (there / "half-a-program").exists()
    assert all((checkout / ".tools" / name / "usr").is_dir() for name in ("slurm", "accounting"))
    (asked,) = (checkout / "asked").read_text().splitlines()
    assert asked.endswith("download prometheus prometheus-alertmanager prometheus-node-exporter")


@pytest.fixture
def tested() -> dict[str, str]:
    """Return programs with which the tests are set up as root, but for those that fetch."""
    more = dict.fromkeys(("victoria-metrics", "vmalert"), "exit 0")
    return {"python3": GOOD_PYTHON, "id": "echo 0", **SERVERS, **more}


def test_root_gets_slurm_for_the_tests_once(checkout: Path, tested: dict[str, str]) -> None:
    fetching = {"apt-get": "echo >>../../asked; touch slurmd.deb", "dpkg-deb": 'mkdir -p "$3/usr"'}

    code, said = run_setup(checkout, tested | fetching, what="test")
    subprocess.run(
        [str(checkout / ".ci" / "setup"), "test"],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        check=True,
        capture_output=True,
        timeout=300,
    )

    assert (0, True) == (code, "fetching Slurm" in said)
    assert (checkout / ".tools/slurm/usr").is_dir()
    assert 1 == len((checkout / "asked").read_text().splitlines())


@pytest.mark.parametrize(("what", "is_fetched"), [("demo", False), ("demo slurm", True)])
def test_the_demo_gets_slurm_where_it_is_asked_for(
    checkout: Path, tested: dict[str, str], what: str, is_fetched: bool
) -> None:
    fetching = {"apt-get": "touch slurmd.deb", "dpkg-deb": 'mkdir -p "$3/usr"'}

    code, said = run_setup(checkout, tested | fetching, what=what)

    assert (0, is_fetched) == (code, "fetching Slurm" in said)
    assert (checkout / ".tools/slurm/usr").is_dir() == is_fetched


def test_without_slurm_its_tests_are_skipped_and_nothing_fails(
    checkout: Path, tested: dict[str, str]
) -> None:
    refusing = {"apt-get": "exit 100", "dpkg-deb": "exit 0"}

    code, said = run_setup(checkout, tested | refusing, what="test")

    assert (0, True) == (code, "it goes on without Slurm" in said)
    assert [] == list((checkout / ".tools").iterdir())


def test_without_root_a_failed_download_is_told_in_apts_own_words(checkout: Path) -> None:
    programs = {
        "python3": GOOD_PYTHON,
        "id": "echo 1000",
        "apt-get": "echo E: Unable to locate package prometheus >&2; exit 100",
        "dpkg-deb": "exit 0",
    }

    code, said = run_setup(checkout, programs)

    assert 1 == code
    assert "Unable to locate package prometheus" in said
    assert "apt-get update" in said.splitlines()[-1]


def test_a_second_set_up_waits_for_the_first(checkout: Path) -> None:
    run_setup(checkout, {"python3": GOOD_PYTHON, **SERVERS})
    with subprocess.Popen(["flock", ".ci", "cat"], cwd=checkout, stdin=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        while (
            subprocess.run(["flock", "-n", ".ci", "true"], cwd=checkout, check=False).returncode
            == 0
        ):
            pass
        with started(checkout) as second:
            assert second.stdout is not None
            first_line = second.stdout.readline()
            waits = second.poll() is None
            holder.stdin.close()
            assert 0 == second.wait(60)

    assert ("== waiting for another set-up of this folder to end\n", True) == (first_line, waits)


def test_a_folder_for_temporary_files_that_cannot_be_used_is_told(checkout: Path) -> None:
    code, said = run_setup(checkout, {"python3": GOOD_PYTHON, **SERVERS}, TMPDIR="/nothere")

    assert 1 == code
    assert "no file can be made in /nothere" in said.splitlines()[-1]


def test_ctrl_c_leaves_no_file_behind(checkout: Path) -> None:
    folder = checkout / "tmp"
    folder.mkdir()
    run_setup(checkout, {"python3": GOOD_PYTHON, **SERVERS})
    (checkout / "constraints.txt").write_text("changed\n")
    (checkout / ".venv/bin/python").write_text("#!/bin/sh\necho installs\nexec sleep 60\n")
    with started(checkout, TMPDIR=str(folder)) as process:
        assert process.stdout is not None
        while "installs" not in process.stdout.readline():
            assert process.poll() is None
        during = len(list(folder.iterdir()))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        code = process.wait(60)

    assert (1, 130, []) == (during, code, list(folder.iterdir()))


def started(checkout: Path, **variables: str) -> subprocess.Popen[str]:
    """Start the set-up in a session of its own, with the programs of before."""
    return subprocess.Popen(
        [str(checkout / ".ci" / "setup"), "demo"],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout), **variables},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def unpacked(checkout: Path) -> Path:
    """Return where an Alertmanager that was unpacked before wants its templates."""
    place = checkout / "share"
    setup = checkout / ".ci" / "setup"
    setup.write_text(setup.read_text().replace(f"={TEMPLATES}\n", f"={place}\n"))
    programs, templates = checkout / ".tools/usr/bin", checkout / f".tools{TEMPLATES}"
    programs.mkdir(parents=True)
    templates.mkdir(parents=True)
    for name in ("prometheus", "promtool", "prometheus-alertmanager", "amtool"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    for name in ("default.tmpl", "email.tmpl"):
        (templates / name).write_text(name)
    return place


def test_root_gives_an_unpacked_alertmanager_its_templates(checkout: Path, unpacked: Path) -> None:
    code, said = run_setup(checkout, {"python3": GOOD_PYTHON, "id": "echo 0"})

    assert (0, True) == (code, f"templates of Alertmanager to {unpacked}" in said)
    assert {"default.tmpl": "default.tmpl", "email.tmpl": "email.tmpl"} == {
        file.name: file.read_text() for file in unpacked.iterdir()
    }


def test_others_are_told_what_puts_them_there(checkout: Path, unpacked: Path) -> None:
    code, said = run_setup(checkout, {"python3": GOOD_PYTHON, "id": "echo 1000"})

    assert (1, False) == (code, unpacked.exists())
    # Before the minutes that Python's packages take.
    assert not (checkout / "installed").exists()
    command = said.splitlines()[-1].split("Run as root: ")[1]
    subprocess.run(["sh", "-c", command], check=True, timeout=300)
    assert {"default.tmpl", "email.tmpl"} == {file.name for file in unpacked.iterdir()}


def test_it_says_how_it_is_used(checkout: Path) -> None:
    done = subprocess.run(
        [str(checkout / ".ci" / "setup")], capture_output=True, text=True, check=False, timeout=300
    )

    assert 0 != done.returncode
    assert "usage: .ci/setup demo|test" in done.stderr
