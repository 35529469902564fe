"""Draws the documentation's pictures: ``make pictures``.

A small fleet runs for nine minutes with three faults (``record``); then each dashboard's JSON is
drawn over what Prometheus saw, by the viewer in ``viewer/``, and the rooms of the web UI and the
page as they were at the end, by ``frames/``, in headless Chromium. Chromium, pngquant, Prometheus
and Alertmanager (with amtool) must be on PATH.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import record
import rooms
from screen import ScreenError, Studio, require_pngquant

from peerwatch_demo.stack.servers import Stack, StackError

HERE = Path(__file__).resolve().parent
DASHBOARDS = HERE.parents[1] / "dashboards"
WIDTH = 1500
# As in viewer/main.js and viewer.css: a cell of the grid, and what stands above and below it.
_CELL, _AROUND = 38, 62


@dataclass(frozen=True, slots=True)
class Picture:
    """What of a dashboard is drawn.

    Parameters
    ----------
    name
        Of the picture's file.
    dashboard
        Of the dashboard's file.
    rows
        Its rows, from 1.
    variables
        Chosen values; the others are the first that there is.
    """

    name: str
    dashboard: str
    rows: tuple[int, ...]
    variables: dict[str, str]


_FAULTY_JOB = {"job_id": next(iter(record.JOBS)), "node": record.FAULTY}
PICTURES = (
    Picture("fleet", "fleet", (1, 2, 3, 4), {}),
    Picture("job", "job", (1, 2), _FAULTY_JOB),
    Picture("peers", "job", (3,), _FAULTY_JOB),
    Picture("node", "node", (1, 2), {"node": record.DEFECTIVE}),
    Picture("fabric", "fabric", (1, 2), {}),
    Picture("reliability", "reliability", (1, 2), {}),
    Picture("detector", "detector", (1, 2, 3), {}),
)


@dataclass(frozen=True, slots=True)
class Frames:
    """Saved views of the web UI, side by side in one picture.

    Parameters
    ----------
    name
        Of the picture's file.
    views
        Names of the saved views.
    width
        Of each, in pixels.
    limit
        What is longer is cut here, a single view at the end of a section.
    """

    name: str
    views: tuple[str, ...]
    width: int
    limit: int


_DESKTOP, _PHONE = 1280, 390
FRAMES = (
    *(
        Frames(f"web-{name}", (name,), _DESKTOP, limit)
        for name, limit in {
            "fleet": 660,
            "job": 1300,
            "node": 1200,
            "incident": 1700,
            "incidents": 900,
            "actions": 900,
            "reliability": 1200,
        }.items()
    ),
    Frames("phone", ("fleet", "job", "incident", "actions"), _PHONE, 844),
    Frames(rooms.PAGE, (rooms.PAGE,), 700, 800),
)
# As in frames/frames.css: around several views, and between them.
_GAP = 24


def height(picture: Picture) -> int:
    """Return how many pixels high a picture is."""
    board = json.loads((DASHBOARDS / f"{picture.dashboard}.json").read_text())
    lines: list[tuple[int, int]] = []
    row = 0
    for panel in board["panels"]:
        row += panel["type"] == "row"
        if row in picture.rows:
            place = panel["gridPos"]
            lines.append((place["y"], place["y"] + place["h"]))
    shown = {line for top, bottom in lines for line in range(top, bottom)}
    return len(shown) * _CELL + _AROUND


def width(frames: Frames) -> int:
    """Return how many pixels wide a picture of saved views is."""
    count = len(frames.views)
    return frames.width * count + (_GAP * (count + 1) if count > 1 else 0)


def take_rooms(folder: Path, output: Path) -> None:
    """Draw the saved views of a recording into a folder."""
    with Studio(HERE / "frames", folder / rooms.FOLDER) as studio:
        for frames in FRAMES:
            query = {
                "views": ",".join(frames.views),
                "width": frames.width,
                "limit": frames.limit,
            }
            file = output / f"{frames.name}.png"
            studio.draw_whole(urlencode(query), file, width(frames))
            print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


def take_dashboards(folder: Path, output: Path) -> None:
    """Draw every dashboard from a recording into a folder."""
    recording = record.load(folder)
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-pictures-") as place,
        Stack(Path(place)) as stack,
        Studio(HERE / "viewer", DASHBOARDS) as studio,
    ):
        server = record.replay(stack, folder)
        for picture in PICTURES:
            query = {
                "dashboard": picture.dashboard,
                "prometheus": server.url,
                # What starts up and what is taken down is left out.
                "from": f"{recording.start + 30:.0f}",
                "to": f"{recording.end - 5:.0f}",
                "rows": ",".join(map(str, picture.rows)),
                **{f"var-{name}": value for name, value in picture.variables.items()},
            }
            file = output / f"{picture.name}.png"
            studio.draw(urlencode(query), file, WIDTH, height(picture))
            print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


def take(folder: Path, output: Path) -> None:
    """Draw all from a recording into a folder."""
    take_rooms(folder, output)
    take_dashboards(folder, output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and draw; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, help="draw this one again instead of a new one")
    parser.add_argument("--keep", type=Path, help="keep the recording in this new folder")
    parser.add_argument("--output", type=Path, default=HERE, help="where the pictures go")
    options = parser.parse_args(arguments)
    try:
        require_pngquant()
        if options.recording:
            take(options.recording, options.output)
            return 0
        with tempfile.TemporaryDirectory(prefix="peerwatch-recording-") as place:
            folder = options.keep or Path(place) / "recording"
            record.record(folder, print)
            take(folder, options.output)
    except (StackError, ScreenError, OSError) as error:
        print(f"make pictures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
