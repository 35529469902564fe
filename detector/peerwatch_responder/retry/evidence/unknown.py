"""Finds the line that a job ended with, where no signature knows it, by words of failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

# Of the end of a log so much is looked at: what a launcher writes after an error is not longer.
# Chosen: 64 KiB are 300 lines of 200 bytes; 40 with words of failure tell all of one failure.
_END_BYTES = 64 * 1024
_END_LINES = 300
_MOST_LINES = 40
_WORDS = re.compile(
    rb"\b(?:error|fatal|exception|panic|abort(?:ed|ing)?|failed|failure|fault|killed|terminated|"
    rb"cannot|can't|could not|unable to|denied|refused|unreachable|corrupt(?:ed|ion)?|"
    rb"unrecogni[sz]ed|unknown option|undefined|not found|no such|mismatch|exceeded|crashed|"
    rb"signal code|unexpectedly|unexpected (?:end|eof|error|token|keyword)|timed out|unavailable|"
    rb"evicted|preempt(?:ed|ion)|cancell?ed|rejected|invalid|illegal|unresponsive|not ready|"
    rb"not available|segfault|SIG(?:TERM|KILL|SEGV|ABRT|BUS|ILL|INT))\b"
    rb"|\w{1,60}(?:Error|Exception)\b|\b(?:exit(?:ed)?(?: with)?(?: code| status)?:? [1-9])",
    re.IGNORECASE,
)
# Counts of none, settings, and what was got over.
_BENIGN = re.compile(
    rb"\b(?:no|0|zero|without) (?:errors?|failures?|exceptions?)\b|(?:errors?|failed|failures?)"
    rb"['\"]?[ ]?[:=][ ]?(?:0|none|false|null|\[\])\b|\berror[_ ](?:rate|bar|feedback)|"
    rb"(?:mean|squared|absolute|validation|test|train|relative)[_ ]error|\bWARN(?:ING)?\b|"
    rb"\bwarn(?:ing)?s?\b|retrying|will retry|falling back|fallback|ignor(?:ed|ing)|deprecat|"
    rb"optional|skipp(?:ed|ing)|on_error|error_handler|fail(?:ed)?[_ ](?:fast|over|safe)|"
    rb"\b(?:INFO|DEBUG)\b|Could not load dynamic library|"
    rb"client socket has failed to connect to .{0,160}\(errno: (?:22|97|99) ",
    re.IGNORECASE,
)


def last_failure(text: bytes, after: int = 0) -> list[int]:
    """Return where the lines of the last failure in a text begin; none: it has none.

    The first is what it is taken for; those that follow may say more.

    Parameters
    ----------
    text
        Of one attempt.
    after
        Where the last step was finished: what stands before it was survived.
    """
    return list(islice(_failures(text, after), _MOST_LINES))


def _failures(text: bytes, after: int) -> Iterator[int]:
    offset = max(after, len(text) - _END_BYTES, 0)
    lines = text[offset:].split(b"\n")
    skip = max(0, len(lines) - _END_LINES)
    for number, line in enumerate(lines):
        if number >= skip and _WORDS.search(line[:2000]) and not _BENIGN.search(line[:2000]):
            yield offset
        offset += len(line) + 1
