"""How long reading Slurm's accounting takes, and how much memory: ``python -m bench.sacct``."""

from __future__ import annotations

import resource
import sys
import time

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.sources.slurm.sacct import SEPARATOR, read_sacct

ROWS = 100_000


def lines():
    """Yield rows of jobs that are requeued once, with names that hold a separator of their own."""
    for n in range(ROWS):
        yield SEPARATOR.join(
            (
                *(str(n // 2), str(n // 2), f"u{n % 50}", ("REQUEUED", "COMPLETED")[n % 2]),
                *(str(1000 + n), str(1000 + n), str(1010 + n), str(1001 + n), "00:00:00"),
                *("billing=8,gres/gpu=64", f"gpu[{n % 900}-{n % 900 + 7}]", f"name {n % 3000}|"),
                *("/home/x", "", "", str(n)),
            )
        )


def main() -> int:
    """Read, chain, and say what it took."""
    began, used = time.monotonic(), time.process_time()
    rows, unreadable = read_sacct(lines())
    chains = chains_of(rows, 1e6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(rows)} rows ({unreadable} unreadable), {len(chains)} jobs: "
        f"{time.monotonic() - began:.1f} s, {time.process_time() - used:.1f} s of CPU, "
        f"{peak:.0f} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
