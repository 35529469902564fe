"""A whole run: settings, lock, checks, and where their results go."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from peerwatch_checks.check import SUITES, Outcome
from peerwatch_checks.facts.gpu_use import gpu_use
from peerwatch_checks.process.failed_alike import failed_alike
from peerwatch_checks.process.peer_values import usual_of
from peerwatch_checks.process.peers import with_peers
from peerwatch_checks.process.progress import ProgressLines
from peerwatch_checks.results.atomic_file import write_file
from peerwatch_checks.results.peers import peers_of
from peerwatch_checks.results.spool import Spool
from peerwatch_checks.results.table import drain_reason, summary, table
from peerwatch_checks.results.textfile import write_textfile
from peerwatch_checks.run.attempts import Circumstances, records
from peerwatch_checks.run.busy import busy
from peerwatch_checks.run.hardware import hardware_of
from peerwatch_checks.run.lock import LockedError, node_lock
from peerwatch_checks.run.needs import Node, has_peers, missing
from peerwatch_checks.run.process_tree import adopt_orphans
from peerwatch_checks.run.runner import Conditions, Runner
from peerwatch_checks.run.suite import SCOPE_COMMANDS, chosen, seconds_for
from peerwatch_checks.settings.load import load_settings, unknown_check
from peerwatch_common.check_results.record import exit_status
from peerwatch_common.check_results.spool import read_spool
from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from peerwatch_checks.check import Check
    from peerwatch_checks.settings.load import Settings
    from peerwatch_common.check_results.record import Record

# Slurm ends a HealthCheckProgram after 60 s, and a node waits for its prolog: as the suite `light`.
_SLURM_SECONDS = 50.0
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop:
    """Notes that the run is to end, and by which signal."""

    def __init__(self) -> None:
        self.reason = ""
        for number in _STOPS:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.reason = f"by {signal.Signals(number).name}"


def run(options: argparse.Namespace) -> int:
    """Run what the flags ask for; return the exit status.

    Raises
    ------
    ConfigError
        If flags or settings have mistakes.
    """
    settings = with_peers(load_settings(options.config), options)
    checks = _chosen(options, settings)
    environment = dict(os.environ)
    about = Circumstances(
        settings.config.node or environment.get("NODE_NAME", "") or socket.gethostname(),
        options.mode,
        environment.get("SLURM_JOB_ID", "") if options.mode != "manual" else "",
        hardware_of(settings.config.paths.procfs),
    )
    of_job = options.mode in {"prolog", "epilog"}
    gpus = job_gpus(environment.get("SLURM_JOB_GPUS", "")) if of_job else None
    folder = options.spool or settings.config.spool
    conditions = _conditions(options, settings, checks, about, gpus)
    adopt_orphans()
    output = _Output(options, None if folder is None else Spool(folder), gpus is not None)
    try:
        with node_lock(settings.config.paths.lock):
            Runner(conditions, output).run(checks)
    except LockedError as error:
        # Not to the spool folder: the other run writes there.
        for check in checks:
            output.show(_skipped(check, about, str(error)))
    drain = ""
    if options.mode != "manual" or options.reason:
        alike = failed_alike(settings.options["peer_config"], output.found)
        drain = drain_reason([each for each in output.found if each.check not in alike])
    output.finish(folder, drain)
    # Slurm drains a node whose prolog ends with any but 0.
    return exit_status(output.found) if options.mode == "manual" else 2 * bool(drain)


def job_gpus(text: str) -> tuple[int, ...]:
    """Return the GPUs that Slurm gave to a job, from ``SLURM_JOB_GPUS``: ``0,2-3``.

    Raises
    ------
    ConfigError
        If it is something else; testing all would disturb the jobs that have the others.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if match is None:
            raise ConfigError([f"SLURM_JOB_GPUS: {text[:100]!r} is no list of indices such as 0,2"])
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _chosen(options: argparse.Namespace, settings: Settings) -> tuple[Check, ...]:
    known = settings.checks
    unknown = [word for word in options.what if word not in {*known, *SUITES, *SCOPE_COMMANDS}]
    if unknown:
        raise ConfigError([unknown_check(word, known) for word in unknown])
    found = chosen(
        options.what, known, exclude=settings.config.exclude, peers=has_peers(os.environ)
    )
    if not found:
        raise ConfigError([f"{' '.join(options.what)}: this node has no such check (exclude)"])
    return found


def _conditions(
    options: argparse.Namespace,
    settings: Settings,
    checks: Sequence[Check],
    about: Circumstances,
    gpus: tuple[int, ...] | None,
) -> Conditions:
    config = settings.config
    environment = dict(os.environ)
    seconds = seconds_for(options.what, checks, peers=has_peers(environment))
    if options.mode != "manual":
        seconds = min(seconds, _SLURM_SECONDS)
    folder = options.spool or config.spool
    ask = partial(busy, config.busy, environment, config.paths.rootfs, partial(gpu_use, gpus))
    stop = Stop()
    return Conditions(
        about=about,
        node=Node(config.paths.procfs, config.paths.sysfs, gpus, environment),
        options=settings.options,
        missing=missing,
        busy=(lambda: "") if options.even_if_busy else ask,
        seconds=options.timeout or seconds,
        rootfs=config.paths.rootfs,
        work=config.paths.work,
        earlier=(lambda _check: ()) if folder is None else Spool(folder).earlier,
        peers=peers_of(options.peers, about.node),
        usual=usual_of(settings.options["peer_config"], about, checks),
        stopped=lambda: stop.reason,
    )


def _skipped(check: Check, about: Circumstances, reason: str) -> tuple[Record, ...]:
    outcomes = {"": Outcome("skipped", reason)}
    return records(check, outcomes, about, started=time.time(), seconds=0.0, attempts=0)


class _Output(ProgressLines):
    """Progress, and what is written of each check as soon as it ended: a run may be killed."""

    def __init__(self, options: argparse.Namespace, spool: Spool | None, limited: bool) -> None:
        super().__init__(sys.stderr)
        self.found: list[Record] = []
        self._options, self._spool, self._limited = options, spool, limited

    def ended(self, check: Check, found: Sequence[Record]) -> None:
        """Write the results of a check."""
        super().ended(check, found)
        self.show(found)
        if self._spool is not None:
            try:
                self._spool.write(check.name, found, limited=self._limited)
            except OSError as error:
                _complain("the exporter does not get these results", error)
                self._spool = None

    def show(self, found: Sequence[Record]) -> None:
        """Keep results for the end, and print those that are read by a program."""
        self.found += found
        if self._options.json:
            sys.stdout.writelines(f"{record.to_json()}\n" for record in found)
            sys.stdout.flush()

    def finish(self, folder: Path | None, drain: str) -> None:
        """Write what is written of the whole run, and why the node is to be drained, if it is."""
        options = self._options
        if options.reason:
            sys.stdout.write(f"{drain}\n" if drain else "")
        elif not options.json:
            sys.stdout.write(table(self.found))
        else:
            sys.stderr.write(f"{summary(self.found)}\n")
        try:
            if options.output is not None:
                write_file(options.output, _lines(self.found))
            if options.textfile is not None:
                write_textfile(options.textfile, self._all(folder))
        except OSError as error:
            _complain("the results are not in that file", error)

    def _all(self, folder: Path | None) -> list[Record]:
        """Return this run's records, and those of other checks from the spool folder."""
        try:
            known = [] if folder is None else list(read_spool(folder).records)
        except OSError:
            known = []
        tested = {(each.check, each.scope) for each in self.found}
        others = [each for each in known if (each.check, each.scope) not in tested]
        if self._spool is None:
            return [*others, *self.found]
        # The folder has them as well, and better: what was skipped did not replace a result.
        return known


def _lines(found: Iterable[Record]) -> str:
    return "".join(f"{record.to_json()}\n" for record in found)


def _complain(what: str, error: OSError) -> None:
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    sys.stderr.write(f"peerwatch-check: {what}: {text}\n")
