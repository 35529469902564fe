"""Checks what names the job of a pod: ``jobs.kubernetes_job_id``."""

from __future__ import annotations

import re

# Chosen: the longest of the rules in peerwatch_common.pod_names has 166.
_LONGEST_PATTERN = 256
# With three repeats and no repeated group, a match takes a number of steps cubic in the length of
# the name at worst: tens of milliseconds, once per pod.
_MOST_REPEATS = 3
# Each may double these steps: 64 times as many at most.
_MOST_CHOICES = 6


def check_naming(setting: str) -> str:
    """Return a setting of ``peerwatch_common.pod_names.PodNaming`` if it can be used.

    Raises
    ------
    ValueError
        If it is no regular expression, lacks the group ``job``, or might take very long.
    """
    if setting in ("job", "pod"):
        return setting
    if len(setting) > _LONGEST_PATTERN:
        raise ValueError(f"has {len(setting)} characters, at most {_LONGEST_PATTERN} are allowed")
    try:
        groups = re.compile(setting).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{setting!r} is neither 'job', 'pod' nor a regular expression: {error}"
        ) from error
    if "job" not in groups:
        raise ValueError(
            f"{setting!r} is neither 'job' nor 'pod', and as a regular expression it has no group "
            "(?P<job>...)"
        )
    _check_cost(setting)
    return setting


def _check_cost(pattern: str) -> None:
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    if re.search(r"\)(?:[*+]|\{)", plain):
        raise ValueError("must not repeat a group, as in (...)+: matching may take for ever")
    if re.search(r"\\[1-9]|\(\?(?:P=|[=!(]|<[=!])", pattern):
        raise ValueError("must have neither references to groups nor look-around")
    # What follows a repeat makes it lazy or possessive and is no repeat of its own.
    plain = re.sub(r"(?<=[*+?}])[+?]", "", plain)
    repeats = len(re.findall(r"[*+]|\{\d*,\d*\}", plain))
    if repeats > _MOST_REPEATS:
        raise ValueError(
            f"has {repeats} repeats (*, + or {{m,n}}), at most {_MOST_REPEATS} are allowed"
        )
    choices = len(re.findall(r"\(|(?<!\()\?", plain))
    if choices > _MOST_CHOICES:
        raise ValueError(
            f"has {choices} groups and optional parts, at most {_MOST_CHOICES} are allowed"
        )
