"""Entry of the driver process; its parent starts it, nobody else has a use for it.

With ``--demo NAME --seed N --start UNIXTIME --onset SECONDS`` it answers from a demonstration.
"""

from __future__ import annotations

import sys

from peerwatch_exporter.driver.serve import options_of, serve


def main() -> int:
    """Run the command line; return the exit status."""
    options = options_of(sys.argv[1:])
    if "demo" in options:
        # Only a demonstration pays for it.
        from peerwatch_exporter.demo.nvml import install_demo  # noqa: PLC0415

        install_demo(
            options["demo"],
            int(options.get("seed", 0)),
            float(options.get("start", 0)),
            float(options.get("onset", 0)),
        )
    return serve(options)


if __name__ == "__main__":
    sys.exit(main())
