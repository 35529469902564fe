"""Write the dashboards' JSON next to this file; ``--check`` only says whether it is stale."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from detector import detector_dashboard
from fabric import fabric_dashboard
from fleet import fleet_dashboard
from job import job_dashboard
from links import UIDS, hand_on
from node import node_dashboard
from reliability import reliability_dashboard

FOLDER = Path(__file__).resolve().parent


def render() -> dict[Path, str]:
    """Return the text of every dashboard by its file."""
    dashboards = {
        "fleet": fleet_dashboard(),
        "job": job_dashboard(),
        "node": node_dashboard(),
        "fabric": fabric_dashboard(),
        "detector": detector_dashboard(),
        "reliability": reliability_dashboard(),
    }
    texts = {
        name: json.dumps(board, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
        for name, board in dashboards.items()
    }
    variables = {
        UIDS[name]: [each["name"] for each in json.loads(text)["templating"]["list"]]
        for name, text in texts.items()
    }
    return {
        FOLDER / f"{name}.json": hand_on(text, UIDS[name], variables)
        for name, text in texts.items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a file is stale")
    options = parser.parse_args(arguments)
    stale = 0
    for file, text in render().items():
        if file.exists() and file.read_text() == text:
            continue
        stale += 1
        if options.check:
            print(f"{file.name} is stale: run make generate", file=sys.stderr)
        else:
            file.write_text(text)
            print(f"wrote {file.name}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
