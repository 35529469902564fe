"""The command ``files``: the rules and dashboards that ship with Peerwatch.

An installed wheel has them below ``share/peerwatch`` of its prefix, where nobody looks for them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from peerwatch_common.errors import ConfigError, PeerwatchError
from peerwatch_common.installation import shared_folder
from peerwatch_detector.errors import OutputError

# What of each folder is for a server: a source folder also has what writes the dashboards.
KINDS = {"rules": "*.yaml", "dashboards": "*.json"}


class FilesMissingError(PeerwatchError):
    """The installation has no rules or no dashboards."""


def add_files(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "files", help="list the alert rules and dashboards of this installation, or copy them"
    )
    command.add_argument("kind", nargs="?", choices=tuple(KINDS), help="only these (default: both)")
    command.add_argument(
        "--copy",
        type=Path,
        metavar="FOLDER",
        help="copy them there, both kinds into a folder of its own each; a file that is there "
        "with another content is kept, and nothing is copied",
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="with --copy: replace files of another content, after an upgrade for instance",
    )
    command.epilog = (
        "Prints a path per line. Prometheus loads *.rules.yaml of the folder rules; those of its "
        "subfolders take the place of some of them, see docs/rules.md."
    )


def run_files(options: argparse.Namespace) -> int:
    """List the files, or copy them and list the copies.

    Raises
    ------
    ConfigError
        If something is to be replaced but nothing copied.
    FilesMissingError
        If this installation does not have them.
    OutputError
        If a file cannot be read or written, or would replace one of another content.
    """
    if options.overwrite and options.copy is None:
        raise ConfigError(["--overwrite: belongs to --copy FOLDER."])
    kinds = [options.kind] if options.kind else list(KINDS)
    found = {kind: _of(kind) for kind in kinds}
    if options.copy is None:
        paths = [path for files in found.values() for path in files.values()]
    else:
        copies = {
            (options.copy / name if options.kind else options.copy / kind / name): path
            for kind, files in found.items()
            for name, path in files.items()
        }
        _copy(copies, overwrite=options.overwrite)
        paths = list(copies)
    try:
        sys.stdout.writelines(f"{path}\n" for path in paths)
        sys.stdout.flush()
    except BrokenPipeError:
        # `... files | head`: whoever read has enough. Python flushes once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _of(kind: str) -> dict[Path, Path]:
    """Return the files of a kind, each by its path within the folder of the kind."""
    folder = shared_folder(kind)
    files = sorted(folder.rglob(KINDS[kind])) if folder else []
    if folder is None or not files:
        raise FilesMissingError(
            f"This installation has no {kind}; they are in share/peerwatch/{kind} of the prefix "
            "that a wheel is installed to: install Peerwatch again."
        )
    return {path.relative_to(folder): path for path in files}


def _copy(copies: Mapping[Path, Path], *, overwrite: bool) -> None:
    """Copy each value to its key; nothing if one is in the way."""
    target = Path()
    try:
        contents = {target: path.read_bytes() for target, path in copies.items()}
        if not overwrite:
            changed = [
                target
                for target, content in contents.items()
                if target.exists() and target.read_bytes() != content
            ]
            if changed:
                more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
                raise OutputError(
                    f"{changed[0]}{more}: there with another content; nothing was copied. Name "
                    "another folder, or replace what is there with --overwrite."
                )
        for target, content in contents.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except OSError as error:
        path = error.filename or target
        raise OutputError(f"{path}: cannot be read or written: {error.strerror}.") from error
