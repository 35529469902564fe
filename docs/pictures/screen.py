"""Headless Chromium on documents that this process serves."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from peerwatch_demo.stack.local_server import LocalServer
from peerwatch_demo.stack.process import tied

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Of the document's own clock, which stands still while it waits for an answer.
_PAGE_MILLISECONDS = 20_000
# A picture takes seconds; on a machine with a load of 20 it takes minutes.
_SECONDS = 600
_TRIES = 3
# Until a document has said how high it is.
_FIRST_HEIGHT = 900
# It asks nobody but this process, so that it also works where nobody else can be reached.
_NO_TALK = (
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class ScreenError(RuntimeError):
    """A document could not be drawn."""


class _Pages(http.server.SimpleHTTPRequestHandler):
    """Serves the viewer at /, what it draws at /material/, and takes the document's own report."""

    def __init__(self, *arguments: Any, studio: Studio) -> None:  # noqa: ANN401 - the base's
        self._studio = studio
        super().__init__(*arguments)

    def translate_path(self, path: str) -> str:
        """Return the file behind a path."""
        name = path.split("?", 1)[0].lstrip("/") or "index.html"
        folder = self._studio.viewer
        if name.startswith("material/"):
            folder, name = self._studio.material, name.removeprefix("material/")
        return str(folder / Path(name).name)

    def do_POST(self) -> None:
        """Take the report: an empty one, or a height in pixels, says that all is drawn."""
        length = int(self.headers.get("Content-Length", 0))
        self._studio.reports.append(self.rfile.read(length).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: the reports tell what went wrong."""


class Studio(LocalServer):
    """Serves the viewer and takes pictures of it.

    Parameters
    ----------
    viewer
        Folder of the document.
    material
        Folder of what the document draws: dashboards' JSON, or saved documents.

    Raises
    ------
    ScreenError
        If there is no Chromium.
    """

    def __init__(self, viewer: Path, material: Path) -> None:
        self.viewer, self.material = viewer, material
        self.reports: list[str] = []
        found = (path for name in _BROWSERS if (path := shutil.which(name)))
        self._browser = next(found, "")
        if not self._browser:
            raise ScreenError(
                f"none of {', '.join(_BROWSERS)} is on PATH. Run as root: "
                "apt-get install --no-install-recommends chromium fonts-dejavu-core"
            )
        super().__init__(partial(_Pages, studio=self))

    def draw(self, query: str, file: Path, width: int, height: int) -> None:
        """Save a picture of the document.

        Parameters
        ----------
        query
            The part of its address behind the question mark.
        file
            A PNG, written or replaced.
        width, height
            Of the picture in pixels.

        Raises
        ------
        ScreenError
            If the document reports an error, or nothing.
        """
        self._open(query, file, width, height)
        _shrink(file)

    def draw_whole(self, query: str, file: Path, width: int) -> None:
        """Save a picture of a document that reports how high it is.

        Raises
        ------
        ScreenError
            As of ``draw``.
        """
        height = self._open(query, file, width, _FIRST_HEIGHT)
        self.draw(query, file, width, height)

    def _open(self, query: str, file: Path, width: int, height: int) -> int:
        """Let the browser draw, and return what the document says of its height, or 0.

        On a busy machine a part of the document may not come in time, which it reports: then again.
        """
        for _ in range(_TRIES - 1):
            try:
                return self._open_once(query, file, width, height)
            except ScreenError:
                continue
        return self._open_once(query, file, width, height)

    def _open_once(self, query: str, file: Path, width: int, height: int) -> int:
        self.reports.clear()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            command = [
                self._browser, "--headless=new", "--no-sandbox", "--disable-gpu", *_NO_TALK,
                f"--user-data-dir={profile}", "--hide-scrollbars",
                f"--window-size={width},{height}", f"--virtual-time-budget={_PAGE_MILLISECONDS}",
                f"--screenshot={file}",
                f"http://{self.address}/?{query}",
            ]  # fmt: skip
            try:
                ended = subprocess.run(
                    tied(command), capture_output=True, text=True, timeout=_SECONDS, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise ScreenError(f"{self._browser} took over {_SECONDS} s for {query}") from error
        if ended.returncode or not self.reports:
            raise ScreenError(f"{self._browser} drew nothing of {query}:\n{ended.stderr[-500:]}")
        problems = [each for each in self.reports if each and not each.isdecimal()]
        if problems:
            raise ScreenError(f"the document could not draw {query}:\n" + "\n".join(problems))
        return max((int(each) for each in self.reports if each), default=0)


def require_pngquant() -> None:
    """Refuse to go on without the program that makes pictures small enough for a repository.

    Raises
    ------
    ScreenError
        If it is not on PATH.
    """
    if shutil.which("pngquant") is None:
        raise ScreenError("pngquant is not on PATH. Run as root: apt-get install pngquant")


def _shrink(file: Path) -> None:
    """Reduce a picture to so many colours as nobody misses, a third of the bytes, where we can."""
    if shutil.which("pngquant") is None:
        return
    options = ["--speed=1", "--strip", "--force", "--output", str(file)]
    subprocess.run(["pngquant", *options, "128", str(file)], check=True)
