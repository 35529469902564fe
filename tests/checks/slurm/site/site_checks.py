"""A check of a site's own that does on each node what its settings say."""

import os
import subprocess
import sys
import time
from pathlib import Path

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register


class SiteOptions(Options):
    """What it does."""

    does: str = Field(default="pass", description="pass, fail_in_prolog or fail.")
    file: Path = Field(default=Path("/dev/null"), description="Where it writes what it starts.")


@register(
    *("site_check", "config", "does what its settings say"),
    failure="nothing but a test",
    severity="high",
    seconds=1.0,
    timeout_seconds=600.0,
    suites=("config", "light"),
    active=False,
    options=SiteOptions,
)
def site_check(context):
    """Leave a process behind, then do as it is told."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    with context.options.file.open("a") as file:
        file.write(f"{child.pid}\n")
    does = context.options.does
    fails = does == "fail" or (does == "fail_in_prolog" and "SLURM_JOB_ID" in os.environ)
    yield Outcome("fail" if fails else "pass", f"It was told to {does}.", "fan2")


@register(
    *("site_hang", "config", "hangs"),
    failure="nothing but a test",
    severity="high",
    seconds=1.0,
    timeout_seconds=1.5,
    suites=("config", "light"),
    active=False,
)
def site_hang(context):
    """Never end."""
    time.sleep(6000)
    yield Outcome("fail", "It is late.")


@register(
    *("site_load", "host", "puts load on the node"),
    failure="nothing but a test",
    severity="high",
    seconds=1.0,
    suites=(),
)
def site_load(context):
    """Pass."""
    yield Outcome("pass", "It ran.")
