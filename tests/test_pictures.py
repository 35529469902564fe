"""The documentation's pictures of the dashboards: there, small, and of what is shipped."""

from __future__ import annotations

import re
import shutil
import struct
import sys
import time
from pathlib import Path

import pytest

from dashboard_queries import DASHBOARDS, load, panels
from peerwatch_reliability.records import Window
from peerwatch_reliability.settings.config import SlurmConfig
from peerwatch_reliability.sources.slurm.source import read_slurm

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
VIEWER = FOLDER / "viewer"
LARGEST_BYTES = 250_000


@pytest.fixture
def take(monkeypatch):
    """The script that takes the pictures; it stands beside them, in no package."""
    monkeypatch.syspath_prepend(FOLDER)
    import take

    return take


def size_of(picture: Path) -> tuple[int, int]:
    """Return width and height from a PNG's first chunk."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_every_dashboard_has_its_picture_in_the_documentation(take):
    document = (ROOT / "docs" / "dashboards.md").read_text()

    assert {path.stem for path in DASHBOARDS} == {picture.dashboard for picture in take.PICTURES}
    for picture in take.PICTURES:
        assert f"](pictures/{picture.name}.png)" in document


def test_no_picture_is_left_over(take):
    expected = {f"{picture.name}.png" for picture in (*take.PICTURES, *take.FRAMES)}

    assert expected == {file.name for file in FOLDER.glob("*.png")}


def test_pictures_are_small_and_of_the_present_layout(take):
    """A row that grew or shrank since shows: the picture has another height."""
    for picture in take.PICTURES:
        file = FOLDER / f"{picture.name}.png"

        assert file.stat().st_size <= LARGEST_BYTES, file.name
        assert (take.WIDTH, take.height(picture)) == size_of(file), f"make pictures: {file.name}"


def test_rooms_are_shown_as_wide_as_their_windows_and_small(take):
    document = (FOLDER / "README.md").read_text()
    for frames in take.FRAMES:
        file = FOLDER / f"{frames.name}.png"

        assert take.width(frames) == size_of(file)[0], f"make pictures: {file.name}"
        assert file.stat().st_size <= LARGEST_BYTES, file.name
        assert f"]({frames.name}.png)" in document


def test_the_history_is_read_as_that_of_slurm(take, tmp_path):
    import history

    now = time.time()
    nodes = [f"gpu-{number:03d}" for number in range(17)]
    history.write(tmp_path / "slurm", nodes)
    window = Window(now - history.DAYS * 86_400, now)
    books = read_slurm(SlurmConfig(folder=tmp_path / "slurm"), window, window)
    assert 50 < len(books.rows)
    assert {"completed", "node_fail"} < {row.state for row in books.rows}
    assert set(nodes) == {node for row in books.rows for node in row.nodes}
    assert books.out
    assert not books.missing


def test_chosen_variables_and_rows_are_those_of_the_dashboard(take):
    for picture in take.PICTURES:
        board = load(ROOT / "dashboards" / f"{picture.dashboard}.json")
        rows = sum(panel["type"] == "row" for panel in board["panels"])

        assert {
            variable["name"] for variable in board["templating"]["list"]
        } >= picture.variables.keys()
        assert rows >= max(picture.rows)


def test_the_viewer_can_draw_every_kind_of_panel():
    (kinds,) = re.findall(r"const KINDS = \{(.*?)\};", (VIEWER / "main.js").read_text(), re.DOTALL)
    known = set(re.findall(r'"?([a-z-]+)"?(?=[:,])', kinds))

    assert known >= {panel["type"] for path in DASHBOARDS for panel in panels(load(path))}


def test_the_viewer_knows_every_unit():
    source = (VIEWER / "units.js").read_text()
    used = set()
    for path in DASHBOARDS:
        for panel in panels(load(path)):
            used.add(panel["fieldConfig"]["defaults"]["unit"])
            for override in panel["fieldConfig"]["overrides"]:
                used |= {prop["value"] for prop in override["properties"] if prop["id"] == "unit"}

    assert {
        unit for unit in used if not re.search(rf'["{{ ]{re.escape(unit)}[":]', source)
    } == set()


def test_without_a_browser_it_says_what_to_install(take, monkeypatch, tmp_path):
    from screen import ScreenError, Studio

    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ScreenError, match="apt-get install"):
        Studio(VIEWER, ROOT / "dashboards")


# In a browser's place: it answers as the viewer does, and writes the smallest PNG there is.
BROWSER = """#!{python}
import base64, sys, urllib.request
options = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
urllib.request.urlopen(sys.argv[-1].split("?")[0], data=b"", timeout=300).close()
with open(options["--screenshot"], "wb") as file:
    file.write(base64.b64decode("{png}"))
"""
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


@pytest.fixture
def browser_alone(monkeypatch, tmp_path):
    """A PATH with a browser on it and without pngquant."""
    folder = tmp_path / "bin"
    folder.mkdir()
    browser = folder / "chromium"
    browser.write_text(BROWSER.format(python=sys.executable, png=PNG))
    browser.chmod(0o755)
    # It ties a browser's life to ours.
    (folder / "setpriv").symlink_to(shutil.which("setpriv"))
    monkeypatch.setenv("PATH", str(folder))


def test_without_pngquant_a_picture_is_drawn_and_only_larger(take, browser_alone, tmp_path):
    from screen import Studio

    with Studio(VIEWER, ROOT / "dashboards") as studio:
        studio.draw("dashboard=job", tmp_path / "job.png", 1, 1)

    assert (1, 1) == size_of(tmp_path / "job.png")


def test_without_pngquant_the_documentation_is_not_drawn(take, browser_alone, tmp_path, capsys):
    assert 1 == take.main(["--output", str(tmp_path)])
    assert "apt-get install pngquant" in capsys.readouterr().err
    assert [] == list(tmp_path.glob("*.png"))
