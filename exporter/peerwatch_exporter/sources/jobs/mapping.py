"""The mapping directory: which training job holds which GPU, as the scheduler's prolog wrote it.

The format is dcgm-exporter's: one file per GPU, named by its index (or ``<gpu>.<instance>``),
one job id per line. The file ``node`` is ours, for jobs that hold the node but no GPU.

Scripts of all kinds write there, so a file may be anything. One that cannot be used is left out;
the others count.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.files.fingerprints import file_fingerprints
from peerwatch_exporter.sources.files.regular_file import NotAFileError, TooLargeError, read_regular
from peerwatch_exporter.sources.jobs.claims import Claim, ClaimedGpu, ProviderAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_exporter.sources.files.fingerprints import Fingerprint

_LOG = logging.getLogger(__name__)

REASONS = (
    "name",
    "not_a_file",
    "unreadable",
    "too_large",
    "binary",
    "job_id",
    "too_many_jobs",
    "too_many_files",
)
# Kubernetes' namespace and name have 63 characters each.
LONGEST_JOB_ID = 128
_GPU_FILE = re.compile(r"([0-9]{1,3})(?:\.[0-9]{1,3})?")
# Chosen: 16 GPUs in seven instances are 112 files, with one or a few jobs each.
_LARGEST_FILE_BYTES = 65536
_MOST_JOBS = 64
_MOST_FILES = 1024
# Names in the log, so that garbage that changes its name every second cannot fill memory.
_MOST_LOGGED = 1024


class Problem(NamedTuple):
    """A file that could not be used, or not as a whole: which, why (of REASONS), and in words."""

    file: str
    reason: str
    detail: str


class _UnusableError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JobMapping:
    """Job ids of the node, and of each GPU that has a file (an idle GPU's file is empty)."""

    node: tuple[str, ...]
    gpus: dict[int, tuple[str, ...]]
    problems: tuple[Problem, ...] = ()

    @property
    def job_ids(self) -> tuple[str, ...]:
        """All jobs mapped, without repetition."""
        listed = (self.node, *self.gpus.values())
        return tuple(dict.fromkeys(job_id for job_ids in listed for job_id in job_ids))


def read_mapping(directory: Path) -> JobMapping:
    """Return the content of the mapping directory.

    Raises
    ------
    OSError
        If the directory cannot be read.
    """
    node: tuple[str, ...] = ()
    gpus: dict[int, tuple[str, ...]] = {}
    problems: list[Problem] = []
    for name in _names(directory, problems):
        match = _GPU_FILE.fullmatch(name)
        if name != "node" and match is None:
            problems.append(Problem(name, "name", "no GPU index, <gpu>.<instance> or 'node'"))
            continue
        try:
            job_ids = _job_ids(name, _text(f"{directory}/{name}"), problems)
        except FileNotFoundError:  # the epilog was faster
            continue
        except _UnusableError as error:
            problems.append(Problem(name, error.reason, str(error)))
            continue
        if match is None:
            node = job_ids
        else:
            gpu = int(match[1])
            gpus[gpu] = tuple(dict.fromkeys((*gpus.get(gpu, ()), *job_ids)))
    return JobMapping(node, gpus, tuple(problems))


class MappingFiles:
    """Reads the mapping directory, its files only when one of them changed.

    Parameters
    ----------
    directory
        The directory.
    clock
        Unix time by the clock that the files' times come from.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._fingerprints: dict[str, Fingerprint | None] | None = None
        self._mapping = JobMapping((), {})

    def read(self) -> JobMapping:
        """Return its content; the same object as long as nothing changes.

        Raises
        ------
        OSError
            If the directory cannot be read.
        """
        now = self._clock()
        fingerprints = file_fingerprints(self._directory)
        if fingerprints == self._fingerprints:
            return self._mapping
        # Files that could not be used are tried again.
        self._fingerprints = None
        mapping = read_mapping(self._directory)
        if mapping != self._mapping:
            self._mapping = mapping
        stable = all(found is not None and found.is_stable(now) for found in fingerprints.values())
        if stable and not mapping.problems:
            self._fingerprints = fingerprints
        return self._mapping


def _names(directory: Path, problems: list[Problem]) -> list[str]:
    # Hidden files are how editors, rsync and Kubernetes' config maps replace others in one step.
    listed = (name for name in os.listdir(directory) if not name.startswith("."))  # noqa: PTH208
    names = sorted(listed, key=lambda name: (_GPU_FILE.fullmatch(name) is None, name))
    if len(names) > _MOST_FILES:
        detail = f"{len(names)} files, only the first {_MOST_FILES} are read"
        problems.append(Problem(".", "too_many_files", detail))
    return names[:_MOST_FILES]


def _text(path: str) -> str:
    try:
        content = read_regular(path, _LARGEST_FILE_BYTES).content
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _UnusableError("unreadable", str(error.strerror)) from error
    except NotAFileError as error:
        raise _UnusableError("not_a_file", str(error)) from error
    except TooLargeError as error:
        raise _UnusableError("too_large", str(error)) from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise _UnusableError("binary", f"is no UTF-8 text: {error.reason}") from error
    if "\0" in text:
        raise _UnusableError("binary", "has bytes of value 0")
    return text


def _job_ids(name: str, text: str, problems: list[Problem]) -> tuple[str, ...]:
    job_ids = dict.fromkeys(line.strip() for line in text.split("\n"))
    job_ids.pop("", None)
    bad = [job_id for job_id in job_ids if not is_job_id(job_id)]
    for job_id in bad:
        del job_ids[job_id]
    if bad:
        detail = f"{bad[0][:40]!r} is longer than {LONGEST_JOB_ID} characters or not printable"
        problems.append(Problem(name, "job_id", detail))
    if len(job_ids) > _MOST_JOBS:
        detail = f"{len(job_ids)} jobs, only the first {_MOST_JOBS} count"
        problems.append(Problem(name, "too_many_jobs", detail))
    return tuple(job_ids)[:_MOST_JOBS]


def is_job_id(text: str) -> bool:
    """Return whether a text can be a job id."""
    return 0 < len(text) <= LONGEST_JOB_ID and text.isprintable()


class MappingProvider:
    """Jobs as the mapping directory has them.

    Parameters
    ----------
    directory
        The directory; None if there is none.

    Attributes
    ----------
    errors
        Files that could not be used, by reason, counted at every reading.
    gpus
        GPUs that have a file.
    """

    name = "mapping"

    def __init__(self, directory: Path | None) -> None:
        self._files = None if directory is None else MappingFiles(directory)
        self._directory = directory
        self._mapping: JobMapping | None = None
        self._answer = ProviderAnswer(())
        self._logged: set[tuple[str, str]] = set()
        self.errors: dict[str, int] = {} if directory is None else dict.fromkeys(REASONS, 0)
        self.gpus: tuple[int, ...] = ()

    def claims(self) -> ProviderAnswer | None:
        """Return a claim for each job.

        Raises
        ------
        OSError
            If the directory cannot be read.
        """
        if self._files is None:
            return None
        self.gpus = ()
        mapping = self._files.read()
        self._note(mapping.problems)
        if mapping is not self._mapping:
            self._mapping, self._answer = mapping, ProviderAnswer(list(_claims(mapping)))
        self.gpus = tuple(sorted(mapping.gpus))
        return self._answer

    def _note(self, problems: tuple[Problem, ...]) -> None:
        present = {(problem.file, problem.reason) for problem in problems}
        for problem in problems:
            self.errors[problem.reason] += 1
            key = problem.file, problem.reason
            if key not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(key)
                _LOG.warning(
                    "mapping file not used file=%r reason=%s detail=%r",
                    f"{self._directory}/{problem.file}",
                    problem.reason,
                    problem.detail,
                )
        # A file that was repaired, or is gone, is logged again the next time.
        self._logged &= present


def _claims(mapping: JobMapping) -> Iterator[Claim]:
    for job_id in mapping.job_ids:
        gpus = tuple(
            ClaimedGpu(gpu) for gpu, jobs in sorted(mapping.gpus.items()) if job_id in jobs
        )
        yield Claim("mapping", job_id, "mapping", gpus=gpus)
