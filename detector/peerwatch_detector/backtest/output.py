"""The files that commands over cases write; a wrong path is found before the work, not after it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from peerwatch_common.errors import ConfigError
from peerwatch_common.installation import install_advice
from peerwatch_detector.errors import OutputError


def check_outputs(*paths: Path | None) -> None:
    """Refuse paths that cannot be written; None is an output that is not asked for.

    Raises
    ------
    OutputError
        If one is a folder, or lies in one that does not exist or cannot be written to.
    """
    for path in filter(None, paths):
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise OutputError(f"{path}: cannot be written; its folder must exist.")


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn; None is one that is not asked for.

    Raises
    ------
    ConfigError
        If it is not to be an SVG file, or if matplotlib is not installed.
    """
    if path is None:
        return
    if path.suffix.lower() != ".svg":
        raise ConfigError([f"--picture {path}: is drawn as SVG; name it *.svg."])
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            [
                f"--picture {path}: needs matplotlib, which is not installed. "
                + install_advice("detector,train")
            ]
        )


def write_text(path: Path, text: str) -> None:
    """Write a whole file.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}.") from error


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO]:
    """Open an output for writing; None is standard output.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    if path is None:
        yield sys.stdout
        return
    try:
        file = path.open("w")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}.") from error
    with file:
        yield file
