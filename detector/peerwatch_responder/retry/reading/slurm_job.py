"""Finds the output of a job of Slurm, and what Slurm says of its end.

The controller knows a job for some minutes after its end (``MinJobAge``); then only the accounting
does, which keeps how the job was submitted but not where it wrote.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_responder.action import UnknownError
from peerwatch_responder.retry.reading.facts import JobFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.actions.slurm.command import Commands

_ID = re.compile(r"[1-9]\d{0,9}(?:_\d{1,9}|\+\d{1,4})?")
# Of `scontrol --oneliner show job`: values may hold spaces, names do not.
_FIELD = re.compile(r"(?:^|\s)([A-Z][\w:/]*)=")
_COLUMNS = ("JobIDRaw", "JobID", "State", "ExitCode", "NodeList", "WorkDir", "JobName", "User")
_SEPARATOR = "\x1f"
# A part of a heterogeneous job, by its column JobID, and the first of them.
_PART = re.compile(rf"^\d+{_SEPARATOR}\d+\+\d+{_SEPARATOR}")
_FIRST_PART = re.compile(rf"^\d+{_SEPARATOR}\d+\+0{_SEPARATOR}")
_QUOTED = ("JobState", "Reason", "ExitCode", "NodeList", "Restarts")
_FLAGS = {"-o": "out", "--output": "out", "-e": "err", "--error": "err"}


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job of Slurm.

    Parameters
    ----------
    facts
        What Slurm says of it.
    outputs
        Where it wrote; files that may be gone.
    """

    facts: JobFacts
    outputs: tuple[Path, ...]


def slurm_job(commands: Commands, job_id: str) -> SlurmJob:
    """Return a job.

    Parameters
    ----------
    commands
        Slurm's.
    job_id
        As people write it: 4711, 4711_3.

    Raises
    ------
    UnknownError
        If Slurm knows no such job, or does not answer.
    """
    if _ID.fullmatch(job_id) is None:
        raise UnknownError(f"{job_id[:100]!r} is no job id of Slurm; 4711 and 4711_3 are")
    try:
        text = commands.ask("scontrol", "--oneliner", "show", "job", job_id)
    except UnknownError as error:
        return _accounted(commands, job_id, str(error))
    lines = text.strip().splitlines() or [""]
    # Of a heterogeneous job the first part runs the script, and with it writes the output.
    parts = [each for each in lines if "HetJobOffset" in fields_in(each)]
    job = job_in(parts[0] if parts else lines[-1], job_id)
    return job if len(parts) < 2 else _without_nodes(job)


def job_in(line: str, job_id: str) -> SlurmJob:
    """Return the job that a line of ``scontrol --oneliner show job`` describes."""
    fields = fields_in(line)
    named = [_whole(fields.get(name, ""), job_id) for name in ("StdOut", "StdErr")]
    outputs = tuple(dict.fromkeys(Path(name) for name in named if name.startswith("/")))
    said = " ".join(f"{name}={fields[name]}" for name in _QUOTED if name in fields)
    facts = _facts(
        job_id,
        fields.get("JobState", ""),
        fields.get("ExitCode", ""),
        fields.get("NodeList", ""),
        f"scontrol show job {job_id}",
        said,
    )
    return SlurmJob(replace(facts, attempt=fields.get("Restarts", "")), outputs)


def _whole(name: str, job_id: str) -> str:
    """Return a path without what ``scontrol`` leaves in it: of a batch script %J is its job."""
    return name.replace("%J", job_id.partition("_")[0].partition("+")[0])


def fields_in(line: str) -> dict[str, str]:
    """Return the fields of a line of ``scontrol --oneliner show``, by name."""
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    return {mark[1]: line[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=False)}


def _accounted(commands: Commands, job_id: str, why: str) -> SlurmJob:
    columns = ",".join((*_COLUMNS, "SubmitLine"))
    try:
        text = commands.ask(
            *("sacct", "-n", "-P", "-X", "-D", f"--delimiter={_SEPARATOR}"),
            *("-j", job_id, "-o", columns),
        )
    except UnknownError as error:
        raise UnknownError(f"{why}; {error}") from error
    rows = [row for row in text.strip("\n").split("\n") if row.count(_SEPARATOR) >= len(_COLUMNS)]
    if not rows:
        raise UnknownError(f"{why}; sacct knows no job {job_id} either")
    parts = [row for row in rows if _PART.search(row)]
    if parts:
        # Of a heterogeneous job the first part runs the script.
        rows = [row for row in parts if _FIRST_PART.search(row)] or parts
    # Of attempts of one job the last is the newest.
    job = accounted_job(rows[-1], job_id, attempt=str(len(rows) - 1))
    return job if len(parts) <= len(rows) else _without_nodes(job)


def _without_nodes(job: SlurmJob) -> SlurmJob:
    """Return a heterogeneous job: the nodes of its first part are not those of the whole."""
    return replace(job, facts=replace(job.facts, nodes=()))


def accounted_job(row: str, job_id: str, attempt: str = "") -> SlurmJob:
    """Return the job that a row of ``sacct`` describes."""
    values = dict(zip((*_COLUMNS, "SubmitLine"), row.split(_SEPARATOR), strict=False))
    said = f"State={values['State']} ExitCode={values['ExitCode']} NodeList={values['NodeList']}"
    facts = _facts(
        job_id, values["State"], values["ExitCode"], values["NodeList"], f"sacct -j {job_id}", said
    )
    return SlurmJob(replace(facts, attempt=attempt), _outputs(values))


def _outputs(values: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where a job wrote, by its command line, and by default where that says nothing."""
    array = values["JobID"].partition("_")
    patterns = _patterns(values.get("SubmitLine", ""))
    default = "slurm-%A_%a.out" if array[1] else "slurm-%j.out"
    named = [patterns.get("out", default), patterns.get("err", "")]
    letters = {
        "j": values["JobIDRaw"],
        "J": values["JobIDRaw"],
        "A": array[0],
        "a": array[2],
        "x": values["JobName"],
        "u": values["User"],
        "%": "%",
    }
    folder = Path(values["WorkDir"])
    names = [expanded(name, letters) for name in named if name]
    return tuple(dict.fromkeys(folder / name for name in names))


def expanded(pattern: str, letters: Mapping[str, str]) -> str:
    """Return a file name of ``sbatch --output`` with what stands for its letters."""
    return re.sub(
        r"%(\d{0,2})([a-zA-Z%])",
        lambda found: letters.get(found[2], found[0]).zfill(int(found[1] or 0)),
        pattern,
    )


def _patterns(submitted: str) -> dict[str, str]:
    try:
        words = shlex.split(submitted)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    # A job of slurmrestd, or of before 21.08, has no command line.
    for word, following in zip(words, [*words[1:], ""], strict=False):
        flag, equals, value = word.partition("=")
        if flag in _FLAGS:
            found[_FLAGS[flag]] = value if equals else following
    return found


def _facts(job_id: str, state: str, exit_code: str, nodes: str, source: str, text: str) -> JobFacts:
    code, _, number = exit_code.partition(":")
    status = int(code) if code.isdecimal() else None
    if number.isdecimal() and int(number):
        # Slurm writes the signal behind the colon.
        status = 128 + int(number)
    bare = nodes if nodes not in {"", "(null)", "None assigned"} else ""
    # A list of several needs Slurm to be read; one node is its own name.
    single = (bare,) if bare and not set(bare) & set(",[") else ()
    return JobFacts(
        job=job_id,
        job_id=job_id,
        exit_code=status,
        state=state.strip(),
        nodes=single,
        source=source,
        text=text,
    )
