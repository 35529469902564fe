#!/usr/bin/env python3
"""Runs the tests of the programs with the oldest versions that pyproject.toml allows.

    make oldest [TESTS="tests/exporter tests/checks"]

They lie in a virtual environment of their own, build/oldest; what has no bound there comes from
.venv. Types, pictures and servers are left to ``make test``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "build" / "oldest"
_PROGRAMS = ("common", "exporter", "checks", "detector", "responder", "reliability")
# Training happens once, with torch as constraints.txt has it.
_NOT_TRIED = ("train",)


def oldest() -> list[str]:
    """Return a requirement for the first series of versions of each package."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    required = {*project["dependencies"]}
    required.update(*(packages for name, packages in extras if name not in _NOT_TRIED))
    # Of flask>=3 that is 3.0.
    required = {re.sub(r">=(\d+)$", r">=\1.0", requirement) for requirement in required}
    return sorted(re.sub(r">=([\d.]+)$", r"==\1.*", requirement) for requirement in required)


def main() -> int:
    """Install them, and run pytest; return its exit status."""
    python = _FOLDER / "bin" / "python"
    venv.create(_FOLDER, with_pip=True, clear=True)
    versions = oldest()
    sys.stdout.write("== " + " ".join(versions) + "\n")
    sys.stdout.flush()
    subprocess.run([python, "-m", "pip", "install", "--quiet", *versions], check=True)
    own, others = (_packages(each) for each in (python, sys.executable))
    (own / "others.pth").write_text(f"import site; site.addsitedir({str(others)!r})\n")
    tests = sys.argv[1:] or [f"tests/{name}" for name in _PROGRAMS]
    paths = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    command = [python, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    # What was compiled with another numba is compiled anew, elsewhere.
    environment = os.environ | {"PATH": paths, "NUMBA_CACHE_DIR": str(_FOLDER / "numba")}
    return subprocess.run([*command, *tests], cwd=_ROOT, env=environment, check=False).returncode


def _packages(python: Path | str) -> Path:
    says = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([python, "-c", says], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
