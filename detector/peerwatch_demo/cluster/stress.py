"""What a fault leaves running on a node: something that burns CPU, or holds memory.

python -m peerwatch_demo.cluster.stress cpu
python -m peerwatch_demo.cluster.stress memory 1073741824
"""

from __future__ import annotations

import sys
import time

# Chosen: small against what is held, so that it comes in many pieces.
_PIECE = 16 * 2**20


def burn() -> None:
    """Keep one CPU busy until killed."""
    number = 1
    while True:
        number = (number * 1103515245 + 12345) % 2**31


def hold(size: int, seconds: float = 2.0) -> list[bytearray]:
    """Take ``size`` bytes within about ``seconds`` and touch every page of them.

    Spread over time, so that it looks like a leak and not like a step, and the kernel is not
    asked for everything at once.
    """
    pieces: list[bytearray] = []
    count = -(-size // _PIECE)
    for _ in range(count):
        # Non-zero content: a page of zeros need not exist.
        pieces.append(bytearray(b"\x01") * min(_PIECE, size))
        time.sleep(seconds / count)
    return pieces


def main(arguments: list[str]) -> int:
    """Do what the command line says until killed."""
    if arguments[:1] == ["cpu"]:
        burn()
    held = hold(int(arguments[1]))
    while held:
        time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
