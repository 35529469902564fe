"""``make gpu``: try everything that needs a GPU and write docs/gpu.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"


def main() -> int:
    """Return 0 if everything holds, 1 if not, 2 if nothing could be tried."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="on the demo's simulated driver")
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page (docs/gpu.md)")
    options = parser.parse_args()
    try:
        import pynvml

        from gpu.part import Node, PartFailedError, python, running
        from gpu.report import report
    except ImportError as error:
        return _refused(
            f"{error.name} is not installed for {sys.executable}. Bring .venv along, or run "
            f"pip install nvidia-ml-py pydantic PyYAML bcrypt where there is a network."
        )
    if options.simulated:
        from peerwatch_demo.simulated_node.nvml import SimulatedNvml
        from peerwatch_demo.simulated_node.nvml_library import put_in_place
        from peerwatch_demo.simulated_node.scenarios import SCENARIOS

        # The scenario never begins: both this process and the exporter's see a healthy node.
        put_in_place(SimulatedNvml(SCENARIOS["healthy"], 1, time.time(), 1e9))
        command = python("peerwatch_demo.exporter", "healthy", "--seed", "1")
    else:
        try:
            pynvml.nvmlInit()
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            return _refused(f"There is no NVIDIA driver to try: {error}. Give --simulated.")
        command = python("peerwatch_exporter")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with running(command, Path(folder) / "exporter.log") as exporter:
                page, failures = report(Node(options.simulated, exporter))
        except PartFailedError as error:
            return _refused(f"The exporter does not run: {error}")
    options.output.write_text(page)
    for failure in failures:
        print(f"make gpu: {failure}", file=sys.stderr)
    print(f"{options.output}: {len(failures)} failures")
    return 1 if failures else 0


def _refused(text: str) -> int:
    print(f"make gpu: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
