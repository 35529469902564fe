"""NVIDIA's own diagnostics, where DCGM is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.external.command import find_program, run
from peerwatch_checks.external.dcgm import DiagError, DiagResult, read_diag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context
    from peerwatch_common.check_results.record import Severity, Status

# Of the time until the deadline. DCGM is known to wait for hours: the time is kept here, and the
# rest is enough to kill it and to say so.
_SHARE = 0.95
_STATUS: dict[str, Status] = {
    "pass": "pass",
    "fail": "fail",
    "warn": "warn",
    "warning": "warn",
    "skip": "skipped",
    "skipped": "skipped",
}


class DcgmDiagOptions(Options):
    """Which diagnostics."""

    level: Literal[1, 2, 3, 4] = Field(
        default=1,
        description="1: software and settings, seconds; 2: memory and PCIe too, 2 to 10 minutes; "
        "3: load, 15 minutes or more; 4: more than 45 minutes. Give dcgm_diag the time it needs.",
    )


@register(
    "dcgm_diag",
    "host",
    "dcgmi diag, by default at level 1: libraries, permissions, ECC and page retirement",
    failure="what DCGM says, by its own severity",
    condition="gpu_inaccessible",
    seconds=10.0,
    suites=("full",),
    needs=("gpu", "dcgm"),
    timeout_seconds=120.0,
    options=DcgmDiagOptions,
)
def dcgm_diag(context: Context, *, find: Callable[[str], str] = find_program) -> Iterator[Outcome]:
    """Yield an outcome for each test and device that did not pass, and one for those that did.

    Parameters
    ----------
    context
        Settings, time, GPUs.
    find
        Returns the path of a program.
    """
    options = context.options
    assert isinstance(options, DcgmDiagOptions)
    command = [find("dcgmi"), "diag", "-r", str(options.level), "-j"]
    if context.gpus is not None:
        command += ["-i", ",".join(map(str, context.gpus))]
    said = run(command, _SHARE * context.seconds)
    if said.status is None:
        text = f"dcgmi diag did not end in {_SHARE * context.seconds:.0f} s."
        yield Outcome("error", f"{text} Look whether nv-hostengine answers: dcgmi discovery -l.")
        return
    try:
        results = read_diag(said.output)
    except DiagError as error:
        detail = said.last_line() or f"exit status {said.status}"
        yield Outcome("error", f"dcgmi diag gave no results: {error} ({detail})")
        return
    passed = [each for each in results if each.status == "pass"]
    yield from (_outcome(each) for each in results if each.status != "pass")
    if passed:
        tests = len({each.test for each in passed})
        yield Outcome("pass", f"{tests} tests of level {options.level} passed.", "passed")
    elif not any(_STATUS.get(each.status) in {"warn", "fail"} for each in results):
        yield Outcome(
            "error", "No test of dcgmi diag passed or failed: all were skipped.", "passed"
        )


def _outcome(result: DiagResult) -> Outcome:
    severity: Severity = "high" if result.high else "low"
    device = " ".join(filter(None, (result.test, result.device)))
    # What DCGM calls otherwise, such as "Not run", is no verdict on the node.
    status = _STATUS.get(result.status, "error")
    text = result.text or f"DCGM says {result.status or 'nothing'}"
    return Outcome(status, f"{device}: {text}", device, severity=severity)
