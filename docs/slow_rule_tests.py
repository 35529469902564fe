"""The unit tests of the slow recording rules: those of the others, at a slower rate.

Scrapes come every 15 s in place of every second and counters grow 15 times as much from one to the
next, so rates and ages stay what they are, and with them the expected values.
"""

from __future__ import annotations

import re

# From one scrape to the next there are 15 s in place of 1, in a test 20 steps in place of 60.
_RATE, _FEWER = 15, 3
_LONGER = _RATE // _FEWER
_HEAD = """\
# Generated from recording.test.yaml: its cases on scrapes of every 15 s. Change them there,
# then run `make generate`.
"""
_VALUES = re.compile(r"values: '([-\d.e]+)\+([\d.e]+)x(\d+)( stale)?'")


def slow_rule_tests(recording_tests: str) -> str:
    """Return slow.test.yaml.

    Parameters
    ----------
    recording_tests
        Text of recording.test.yaml.
    """
    settings = recording_tests[recording_tests.index("rule_files:") :]
    slow = _HEAD + settings.replace("recording.rules.yaml", "slow/slow.rules.yaml")
    slow = re.sub(r"interval: 1s$", f"interval: {_RATE}s", slow, flags=re.MULTILINE)
    slow = re.sub(r"(eval_time: |dies after )(\d+)", _later, slow)
    return _VALUES.sub(_at_the_slow_rate, slow)


def _later(match: re.Match[str]) -> str:
    return f"{match[1]}{int(match[2]) * _LONGER}"


def _at_the_slow_rate(match: re.Match[str]) -> str:
    first, step, count, end = match.groups(default="")
    return f"values: '{first}+{float(step) * _RATE:g}x{int(count) // _FEWER}{end}'"
