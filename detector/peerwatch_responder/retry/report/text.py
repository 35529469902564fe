"""An advice as text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_responder.retry.answer import Kind, Line, RetryAdvice

_TITLES: dict[Kind, str] = {
    "retry": "RETRY",
    "retry_elsewhere": "RETRY ELSEWHERE",
    "retry_with_backoff": "RETRY LATER",
    "do_not_retry": "DO NOT RETRY",
    "ask_user": "ASK THE OWNER",
}
# Chosen: as a rule the whole report fits a terminal of 24 lines.
_MOST_CASCADES, _MOST_BEFORE = 5, 5


def advice_lines(advice: RetryAdvice) -> list[str]:
    """Return the lines of an advice: what to do first, then why, then what it rests on."""
    lines = [
        f"{_TITLES[advice.kind]}  (confidence {advice.confidence:.2f}, by {advice.reason})",
        advice.text,
    ]
    if advice.isolate:
        lines.append(f"  without    {', '.join(advice.isolate)}")
    if advice.wait_seconds:
        lines.append(f"  wait       {advice.wait_seconds:.0f} s")
    for name, quoted in (
        ("root", () if advice.root is None else (advice.root,)),
        ("evidence", _others(advice)),
    ):
        lines += [f"  {name if not n else '':<10} {_line(each)}" for n, each in enumerate(quoted)]
    if advice.signature or advice.event_class:
        what = advice.signature or "none"
        lines.append(f"  signature  {what}, class {advice.event_class or 'unknown'}")
    if advice.cascades:
        shown = list(advice.cascades.items())[:_MOST_CASCADES]
        text = ", ".join(f"{name} ({count})" for name, count in shown)
        more = len(advice.cascades) - len(shown)
        lines.append(f"  follows    {text}{f' and {more} more' if more > 0 else ''}")
    if advice.step is not None:
        lines.append(f"  last step  {advice.step}")
    for n, each in enumerate(advice.before[:_MOST_BEFORE]):
        reached = "unknown" if each.step is None else str(each.step)
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.time))
        lines.append(f"  {'' if n else 'before':<10} {when} {each.advice}, last step {reached}")
    lines += [f"  note       {note}" for note in advice.notes]
    if advice.fingerprint:
        lines.append(f"  id         {advice.attempt} of {advice.job}, root {advice.fingerprint}")
    return lines


def _others(advice: RetryAdvice) -> list[Line]:
    return [each for each in advice.lines if each != advice.root]


def _line(line: Line) -> str:
    where = line.log if line.number is None else f"{line.log}:{line.number}"
    who = "" if line.rank is None else f" rank {line.rank}"
    on = f" on {line.node}" if line.node else ""
    return f"{where}{who}{on}: {line.text}"
