"""Checks that do what checks must not do; loaded as a site's own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, Skip, register

IGNORING = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(600)"
)


class FaultyOptions(Options):
    """Where it writes."""

    file: Path = Field(default=Path("/dev/null"), description="A file of the test's.")


def faulty(
    name, *, scope="host", seconds=1.0, timeout=60.0, severity="low", active=False, needs=()
):
    return register(
        *(name, scope, "does what it must not"),
        failure="nothing but a test",
        severity=severity,
        seconds=seconds,
        timeout_seconds=timeout,
        suites=(),
        needs=needs,
        active=active,
        options=FaultyOptions,
    )


@faulty("passes", active=True)
def passes(context):
    yield Outcome("pass", "It is well.", value=9.0, unit="GB/s", expected=10.0)


@faulty("fails_among_many", scope="multi")
def fails_among_many(context):
    yield Outcome("fail", f"attempt {context.attempt}")


@faulty("reads")
def reads(context):
    yield Outcome("pass", f"{context.node} attempt {context.attempt} gpus {context.gpus}")


@faulty("hangs", timeout=1.5)
def hangs(context):
    yield Outcome("pass", "The first half is well.", "first")
    time.sleep(600)


@faulty("has_children")
def has_children(context):
    """Start one child in its group, one in a session of its own, and one that nobody waits for."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    command = [sys.executable, "-c", IGNORING, str(context.options.file)]
    subprocess.Popen(command)
    subprocess.Popen(command, start_new_session=True)
    script = 'setsid "$@" & exit'
    subprocess.run(["sh", "-c", script, "sh", *command], check=True)
    if not os.environ.get("ENDS_AT_ONCE"):
        time.sleep(600)
    file = context.options.file
    while not file.exists() or len(file.read_text().split()) < 3:
        time.sleep(0.01)
    yield Outcome("pass", "Its children live on.")


@faulty("crashes")
def crashes(context):
    yield Outcome("pass", "The first half is well.", "first")
    print("going down", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


@faulty("raises")
def raises(context):
    raise ZeroDivisionError("nobody expects this")
    yield


@faulty("skips")
def skips(context):
    raise Skip("There is nothing to test.")
    yield


@faulty("says_nothing")
def says_nothing(context):
    return ()


@faulty("prints")
def prints(context):
    print("this is no outcome" * 10_000)
    yield Outcome("pass", "It printed.")


@faulty("talks_without_end")
def talks_without_end(context):
    while True:
        yield Outcome("pass", "x" * 900, "y")


@faulty("says_nonsense")
def says_nonsense(context):
    yield Outcome("great", "What a node.", "status")
    yield Outcome("pass", "No number.", "number", value=float("nan"))
    yield Outcome("pass", "m" * 5000 + "\n", "length" * 100)


@faulty("fails", severity="high")
def fails(context):
    yield Outcome("fail", "It is broken.", "gpu0")
    yield Outcome("pass", "It is well.", "gpu1")


@faulty("fails_low")
def fails_low(context):
    yield Outcome("fail", "It is slow.")


@faulty("fails_once")
def fails_once(context):
    yield Outcome("pass" if context.attempt else "fail", f"Attempt {context.attempt}.")


@faulty("fails_the_second_time")
def fails_the_second_time(context):
    yield Outcome("fail", "It is broken.", "gpu0")
    if context.attempt:
        raise RuntimeError("and then this")


@faulty("needs_a_gpu", needs=("gpu",))
def needs_a_gpu(context):
    yield Outcome("pass", "It has a GPU.")


@faulty("writes")
def writes(context):
    (context.work_folder / "large").write_bytes(bytes(1000))
    yield Outcome("pass", str(context.work_folder))


SLOW = (
    "import signal, sys, time; say = lambda text: open(sys.argv[1], 'a').write(text + '\\n'); "
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), say('cleaned up'), sys.exit())); "
    "say('up'); time.sleep(600)"
)


@faulty("has_a_slow_child")
def has_a_slow_child(context):
    """Start a child that cleans up when it is asked to end; the check ends at once."""
    subprocess.Popen([sys.executable, "-c", SLOW, str(context.options.file)])
    time.sleep(600)
    yield Outcome("pass", "It is well.")
