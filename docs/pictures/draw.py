"""Draws one shipped dashboard over a Prometheus that runs: ``python docs/pictures/draw.py``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from screen import ScreenError, Studio
from take import DASHBOARDS, HERE, WIDTH, Picture, height

from peerwatch_demo.stack.process import StackError


def draw(prometheus: str, minutes: float, picture: Picture, file: Path) -> None:
    """Save a picture of the last minutes.

    Raises
    ------
    ScreenError
        If there is no Chromium, or it cannot draw.
    """
    now = time.time()
    query = {
        "dashboard": picture.dashboard,
        "prometheus": prometheus,
        "from": f"{now - 60 * minutes:.0f}",
        "to": f"{now:.0f}",
        "rows": ",".join(map(str, picture.rows)),
        **{f"var-{name}": value for name, value in picture.variables.items()},
    }
    with Studio(HERE / "viewer", DASHBOARDS) as studio:
        studio.draw(urlencode(query), file, WIDTH, height(picture))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "dashboard", choices=sorted(path.stem for path in DASHBOARDS.glob("*.json"))
    )
    parser.add_argument("--prometheus", required=True, help="its URL")
    parser.add_argument("--output", type=Path, required=True, help="a PNG, written or replaced")
    parser.add_argument("--minutes", type=float, default=15.0, help="how far back (%(default)g)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2], help="of the dashboard")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(arguments)
    variables = dict(pair.split("=", 1) for pair in options.variable)
    picture = Picture(options.output.stem, options.dashboard, tuple(options.rows), variables)
    try:
        draw(options.prometheus, options.minutes, picture, options.output)
    except (ScreenError, StackError, OSError) as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
