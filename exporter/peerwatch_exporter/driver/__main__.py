"""Entry of the driver process; its parent starts it, nobody else has a use for it."""

from __future__ import annotations

import sys

from peerwatch_exporter.driver.serve import options_of, serve


def main() -> int:
    """Run the command line; return the exit status."""
    return serve(options_of(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
