"""Where this Peerwatch is installed: from a source folder or from a wheel, and what lies beside it.

What a program tells its user to do must be possible there: only a source folder has a Makefile,
``constraints.txt`` and extras that are installed by ``.[extra]``.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

_NAME = "peerwatch"
_PACKAGE = Path(__file__).absolute().parent


def source_folder() -> Path | None:
    """Return the source folder that this package runs from or was installed from; None: a wheel."""
    own = _PACKAGE.parents[1]
    return next((folder for folder in (own, _installed_from()) if _is_source(folder)), None)


def shared_folder(name: str, package: Path = _PACKAGE) -> Path | None:
    """Return a folder that ships beside the packages; None if this installation lacks it.

    A source folder has it at its top, an installed wheel below ``share/peerwatch`` of the prefix:
    of a virtual environment, of the system, of ``~/.local``, or of ``pip install --target``.

    Parameters
    ----------
    name
        ``rules`` or ``dashboards``.
    package
        Folder of a package of the installation.
    """
    top = package.parents[1]
    if _is_source(top):
        candidates = [top / name]
    else:
        # site-packages itself, and up to the prefix: PREFIX/lib/python3.x/site-packages.
        candidates = [place / "share" / _NAME / name for place in list(package.parents)[:4]]
    return next((folder for folder in candidates if folder.is_dir()), None)


def install_advice(extra: str) -> str:
    """Return the sentence that tells how to add optional dependencies to this installation.

    A wheel's user is told the packages themselves: no index has Peerwatch, and a package of the
    same name that one has some day need not be this one.

    Parameters
    ----------
    extra
        Names of ``project.optional-dependencies``, separated by commas.
    """
    pip = f"{sys.executable} -m pip install"
    folder = source_folder()
    if folder is not None:
        return f"Run in {shlex.quote(str(folder))}: {pip} -c constraints.txt '.[{extra}]'"
    needs = _requirements(set(extra.split(",")))
    if not needs:
        return f"Install Peerwatch again, with [{extra}] after the path of its wheel."
    return f"Run {pip} {' '.join(map(shlex.quote, needs))}"


def _is_source(folder: Path | None) -> bool:
    return folder is not None and all(
        (folder / name).is_file()
        for name in ("pyproject.toml", "constraints.txt", "exporter/peerwatch_common/__init__.py")
    )


def _installed_from() -> Path | None:
    """Return the local folder that pip noted as the origin of this installation (PEP 610)."""
    import json  # noqa: PLC0415 - only for a message; keeps the exporter's start light
    from importlib import metadata  # noqa: PLC0415
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    try:
        origin = json.loads(metadata.distribution(_NAME).read_text("direct_url.json") or "{}")
        url = urlsplit(str(origin.get("url", "")))
    except (metadata.PackageNotFoundError, OSError, ValueError, AttributeError):
        return None
    if url.scheme != "file" or "dir_info" not in origin:
        return None
    return Path(unquote(url.path))


def _requirements(extras: set[str]) -> list[str]:
    """Return the requirements of extras, as the installed metadata has them, without markers."""
    from importlib import metadata  # noqa: PLC0415

    try:
        lines = metadata.requires(_NAME) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if extras & set(re.findall(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)):
            found.append(requirement.strip())
    return found
