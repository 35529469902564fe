"""A node that pings: runs in a namespace, and says what it counted for each line it reads."""

from __future__ import annotations

import json
import sys

from peerwatch_exporter.settings.pings import PingsConfig
from peerwatch_exporter.sources.pings.mesh import Mesh


def counted(mesh: Mesh) -> list[list[object]]:
    """Return what each target counted: peer, protocol, size, sent, and lost by direction."""
    return [
        [*target, counts.sent, *counts.lost.values()]
        for target, counts in mesh.totals.read().items()
    ]


def main() -> None:
    """Ping until the input ends."""
    mesh = Mesh(PingsConfig.model_validate_json(sys.argv[1]))
    mesh.start()
    for _ in sys.stdin:
        answer = {"counts": counted(mesh), "problem": str(mesh.problem or mesh.peers.problem or "")}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    mesh.close()


if __name__ == "__main__":
    main()
