"""Switches heartbeats on inside a training job, by environment alone.

The launcher sets two variables and the job's code stays as it is::

    PYTHONPATH=$(peerwatch-exporter hook-path) PEERWATCH_HEARTBEAT_DIR=/run/peerwatch/heartbeat

Python imports ``sitecustomize`` when it starts. This one starts the heartbeat of
``peerwatch_heartbeat.py`` beside it and, with ``PEERWATCH_SPANS=1``, the spans of
``peerwatch_spans``, then runs the ``sitecustomize`` it stands in front of.
Standard library only: nothing of Peerwatch need be installed where the job runs.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def run_next() -> None:
    """Run the next ``sitecustomize`` on ``sys.path``, as Python would have without this one."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 - no pathlib at every start
    others = [entry for entry in sys.path if os.path.realpath(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec  # noqa: PLC0415 - rarely needed, slows the start

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def start_heartbeat() -> None:
    """Start the heartbeat if the environment asks for it; whatever goes wrong, the job runs."""
    directory = os.environ.get("PEERWATCH_HEARTBEAT_DIR")
    if not directory:
        return
    try:
        # Found on PYTHONPATH, like this file; not a part of the package.
        import peerwatch_heartbeat  # type: ignore[import-not-found]  # noqa: PLC0415

        peerwatch_heartbeat.start(directory)
    except Exception:  # noqa: S110 - contextlib would be one more import at every start
        pass


def start_spans() -> None:
    """Time the training loop if the environment asks for it; whatever goes wrong, the job runs."""
    directory = os.environ.get("PEERWATCH_HEARTBEAT_DIR")
    if not directory or os.environ.get("PEERWATCH_SPANS", "0") in {"", "0"}:
        return
    try:
        import peerwatch_spans  # type: ignore[import-not-found]  # noqa: PLC0415

        peerwatch_spans.start(directory)
    except Exception:  # noqa: S110
        pass


# Imported under another name (by a test, by a documentation tool) it does nothing.
if __name__ == "sitecustomize":
    start_heartbeat()
    start_spans()
    run_next()
