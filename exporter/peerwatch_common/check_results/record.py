"""The record of one check of one device: a line of JSON, from checks to the exporter."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from peerwatch_common.errors import PeerwatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Status = Literal["pass", "warn", "fail", "error", "skipped"]
Severity = Literal["high", "low"]
Scope = Literal["config", "host", "pair", "multi"]

# In the order of their values in peerwatch_check_status.
STATUSES: tuple[Status, ...] = get_args(Status)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
SCOPES: tuple[Scope, ...] = get_args(Scope)
# Scopes of tests that several nodes take together.
OF_SEVERAL_NODES: frozenset[Scope] = frozenset({"pair", "multi"})
# What does not speak of the node, but of the check: it never drains.
UNKNOWN: frozenset[Status] = frozenset({"error", "skipped"})

# Chosen: names and versions here are far shorter and fewer; a message still fits into a label
# (label_length.py).
MAX_NAME = 100
MAX_MESSAGE = 1000
MAX_VERSIONS = 50


class RecordError(PeerwatchError):
    """A line is no record of a check; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What one check found about one device of one node.

    Parameters
    ----------
    check
        Name of the check.
    scope
        What was tested: the node's configuration, one host, a pair of nodes, several.
    device
        Which part, such as ``gpu0``, ``mlx5_0`` or ``/data``; empty: all of the node. In tests of
        several nodes another node, a link, a switch or the fabric.
    status
        ``error``: the check itself did not work; ``skipped``: it did not run. Neither speaks of
        the node.
    severity
        What a failure asks for: ``high``: take the node out now; ``low``: when its job has ended.
    message
        A sentence: what was found and, unless it passed, what to do.
    started, duration_seconds
        When it ran, as Unix time, and for how long.
    node
        The node's name.
    value, unit
        What was measured; None: nothing was.
    expected
        What the value was compared with, in the same unit; None: with nothing.
    value_ratio
        ``value / expected``; None where one of them is missing.
    attempts
        How often it ran: a failure counts once it is repeated.
    mode
        Who asked for it: ``manual``, or Slurm's ``prolog``, ``epilog`` or ``health`` check.
    job_id
        The scheduler's job in whose prolog or epilog it ran; empty: none.
    versions
        Versions of what took part, by name.
    """

    check: str
    scope: Scope
    device: str
    status: Status
    severity: Severity
    message: str
    started: float
    duration_seconds: float
    node: str
    value: float | None = None
    unit: str = ""
    expected: float | None = None
    value_ratio: float | None = None
    attempts: int = 1
    mode: str = "manual"
    job_id: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def status_value(self) -> int:
        """0 pass, 1 warn, 2 fail, 3 error, 4 skipped."""
        return STATUSES.index(self.status)

    @property
    def key(self) -> tuple[str, str, str]:
        """What the record is about: check, scope and device."""
        return (self.check, self.scope, self.device)

    @property
    def is_about_others(self) -> bool:
        """Whether it speaks of other nodes, or of what is between them, and not of this node."""
        return self.scope in OF_SEVERAL_NODES and self.device != ""

    def to_json(self) -> str:
        """Return the record as one line, without its end."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))


def exit_status(records: Iterable[Record]) -> int:
    """Return the exit status for records: 2 fail, 1 warn, 3 error or skipped, 0 all passed.

    A statement about the node outranks one about a check, and no record at all is no pass.
    """
    found = {record.status for record in records}
    if "fail" in found:
        return 2
    if "warn" in found:
        return 1
    return 0 if found == {"pass"} else 3


def parse_record(line: str) -> Record:
    """Return the record that a line holds; keys of later versions are left out.

    Raises
    ------
    RecordError
        If it is none, says what it cannot say, or is longer than a record may be.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"It is no JSON: {error}.") from error
    if not isinstance(data, dict):
        raise RecordError(f"It is {type(data).__name__}, not an object of JSON.")
    known = {each.name for each in fields(Record)}
    try:
        record = Record(**{name: value for name, value in data.items() if name in known})
    except TypeError as error:
        raise RecordError(f"It lacks what a record has: {error}.") from error
    _verify(record)
    return record


def _verify(record: Record) -> None:
    """Refuse what cannot be published."""
    for name, known in (("status", STATUSES), ("severity", SEVERITIES), ("scope", SCOPES)):
        value = getattr(record, name)
        if value not in known:
            raise RecordError(f"Its {name} is {value!r}, not one of {', '.join(known)}.")
    texts = {"check": MAX_NAME, "device": MAX_NAME, "node": 253, "unit": MAX_NAME}
    texts |= {"mode": MAX_NAME, "job_id": MAX_NAME, "message": MAX_MESSAGE}
    for name, most in texts.items():
        value = getattr(record, name)
        if not isinstance(value, str) or len(value) > most:
            raise RecordError(f"Its {name} is no text of at most {most} characters.")
    if not record.check:
        raise RecordError("Its check has no name.")
    for name in ("started", "duration_seconds"):
        if not _is_number(getattr(record, name)) or getattr(record, name) < 0:
            raise RecordError(f"Its {name} is {getattr(record, name)!r}, not a number from 0 on.")
    for name in ("value", "expected", "value_ratio"):
        if getattr(record, name) is not None and not _is_number(getattr(record, name)):
            raise RecordError(f"Its {name} is {getattr(record, name)!r}, not a number.")
    if not _is_number(record.attempts) or record.attempts < 0 or record.attempts % 1:
        raise RecordError(f"Its attempts are {record.attempts!r}, not a whole number.")
    _verify_versions(cast("object", record.versions))


def _verify_versions(versions: object) -> None:
    if not isinstance(versions, dict) or len(versions) > MAX_VERSIONS:
        raise RecordError(f"Its versions are no object of at most {MAX_VERSIONS}.")
    for name, value in versions.items():
        if not isinstance(value, str) or len(value) > MAX_NAME:
            raise RecordError(f"Its version of {name!r} is no text of {MAX_NAME} characters.")


def _is_number(value: Any) -> bool:  # noqa: ANN401 - it may be anything that JSON holds
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
