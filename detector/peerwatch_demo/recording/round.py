"""One round of a recording: one stack, one fault after another, each written as a case.

A fault is done, waited for, undone; the next comes when the job has been healthy for a minute.
What is written is what ``peerwatch-detector export-case`` would write, read from the round's own
Prometheus while it still runs.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from peerwatch_common.errors import PeerwatchError
from peerwatch_demo.cluster.cluster import PROGRESS_SECONDS, Cluster, node_names
from peerwatch_demo.cluster.faults import Fault
from peerwatch_demo.cluster.nodes import JOB_ID, Place
from peerwatch_demo.cluster.settings import Settings
from peerwatch_demo.recording.live import HEALTHY, Line, Listener, LiveFinding, LiveLog
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.load import load_average
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import Stack
from peerwatch_demo.stack.webhook import WebhookReceiver
from peerwatch_detector.backtest.cases import Truth, load_case
from peerwatch_detector.backtest.export_case import Stretch, export_case
from peerwatch_detector.config import load_config
from peerwatch_detector.reading.reader import PrometheusReader

# Chosen: delays of findings are told in seconds.
_POLL_SECONDS = 0.5
# Before a fault, and between the end of one and the next: chosen, as long as a fault may last.
_HEALTHY_SECONDS = 60
# How long a finding is waited for, and what a case has of the time after it. Chosen: what has not
# been found after a minute counts as missed.
_FINDING_SECONDS = 60.0
_AFTERWARDS_SECONDS = 5.0
# A job that has this share of its usual speed again goes on as before. Chosen: on a shared machine
# speed varies by itself.
_AS_BEFORE = 0.7
# The speed is the median over this long: chosen, of twenty looks.
_PACE_SECONDS = 10.0
# Chosen: the job is as before within a minute, or something is wrong with it.
_RECOVERY_SECONDS = 300.0
# A single answer that does not come on a busy machine means nothing: chosen, ten seconds of none.
_UNANSWERED = 20
# Scrapes, rules and the answer to the last second's query need some time: chosen, three scrapes of
# 1 s.
_WRITTEN_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a recording goes.

    Parameters
    ----------
    path
        Exists.
    """

    path: Path

    @property
    def cases(self) -> Path:
        """The case folders."""
        return self.path / "cases"

    @property
    def models(self) -> Path:
        """The models that the first round trains and all use."""
        return self.path / "models.npz"

    @property
    def config(self) -> Path:
        """The detector's configuration, for ``peerwatch-detector evaluate --config``."""
        return self.path / "detector.yaml"

    def round(self, number: int) -> Path:
        """Return a new folder for a round's logs and data, beside those of earlier tries."""
        rounds = self.path / "rounds"
        tries = len(list(rounds.glob(f"{number:02d}-*")))
        path = rounds / f"{number:02d}-{tries + 1}"
        path.mkdir(parents=True)
        return path


class Clock:
    """Unix time and waiting; tests put their own in its place."""

    def now(self) -> float:
        """Return Unix time in seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Round:
    """One stack and what is done to it.

    Parameters
    ----------
    number
        From 1.
    folder, log
        Where cases and live findings go.
    place
        Where the repository's parts are.
    console
        The terminal.
    clock
        Time, and waiting for it to pass.
    write
        Writes a case; see ``write_case``.
    """

    def __init__(
        self,
        number: int,
        folder: Folder,
        log: LiveLog,
        place: Place,
        console: Console,
        *,
        clock: Clock | None = None,
        write: Callable[[Path, Line, Path], None] | None = None,
    ) -> None:
        self._number = number
        self._folder = folder
        self._log = log
        self._place = place
        self._console = console
        self._clock = clock or Clock()
        self._write = write or write_case
        self._before = len(log.lines)
        self._directory = folder.round(number)
        self._usual = 0.0

    def faults(self, order: Sequence[tuple[Fault, str]], *, namespaces: bool) -> None:
        """Do the faults to their nodes, one after another; what cannot be undone comes last.

        Raises
        ------
        StackError
            If something could not be started or the job does not recover; what has its line in
            the log is done.
        """
        with ExitStack() as outer:
            cluster, listener = self._start(outer, namespaces=namespaces)
            self._usual = self._healthy_stretch(cluster, listener, _HEALTHY_SECONDS)
            if listener.standing:
                self._recover(cluster, listener, "start")
            for index, (fault, name) in enumerate(order, start=1):
                self._fault(cluster, listener, fault, name)
                if fault.undo is None:
                    break
                if index < len(order):
                    self._recover(cluster, listener, fault.name)
        self._clean()

    def healthy(self, minutes: float, *, namespaces: bool) -> None:
        """Let the job train and nothing else happen.

        Raises
        ------
        StackError
            If something could not be started.
        """
        with ExitStack() as outer:
            cluster, listener = self._start(outer, namespaces=namespaces)
            self._healthy_stretch(cluster, listener, _HEALTHY_SECONDS)
            start, load, speed = self._clock.now(), load_average(), cluster.steps_per_second()
            self._console.line(f"{minutes:g} minutes of healthy training", "event")
            heard = self._listen(cluster, listener, 60 * minutes)
            self._export(
                Line(
                    "healthy", self._number, HEALTHY, "", f"{HEALTHY}-{self._number:02d}",
                    start, start, self._clock.now(), tuple(heard), (), load, speed,
                ),
            )  # fmt: skip
        self._clean()

    def _start(self, outer: ExitStack, *, namespaces: bool) -> tuple[Cluster, Listener]:
        outer.callback(self._console.line, "everything is down", "quiet")
        stack = outer.enter_context(Stack(self._directory))
        receiver = outer.enter_context(WebhookReceiver())
        names = node_names(Settings().nodes)
        cluster = Cluster(names, self._place, stack, self._console, namespaces=namespaces)
        cluster.start_nodes()
        cluster.start_servers(receiver)
        cluster.wait_for_training()
        if self._folder.models.exists():
            cluster.settle()
        else:
            cluster.learn(_HEALTHY_SECONDS, self._folder.models)
        detect = cluster.start_detector(self._folder.models)
        self._folder.config.write_text(cluster.detector_config(self._folder.models))
        return cluster, Listener(detect.url, self._clock.now)

    def _healthy_stretch(self, cluster: Cluster, listener: Listener, seconds: float) -> float:
        """Let time pass, write down what is found in it, and return the usual steps a second."""
        self._console.line(f"{seconds:g} s of healthy training")
        start = self._clock.now()
        speeds: list[float] = []
        heard = self._listen(cluster, listener, seconds, speeds)
        self._stray("start", start, heard)
        return statistics.median(speeds)

    def _fault(self, cluster: Cluster, listener: Listener, fault: Fault, name: str) -> None:
        node = cluster.node(name)
        load, speed = load_average(), cluster.steps_per_second()
        before = listener.poll()
        onset = self._clock.now()
        done = fault.inject(cluster.site, node)
        self._console.line(f"FAULT {fault.name} on {name}: {done} (load {load})", "event")
        heard = self._wait_for_finding(cluster, listener, onset)
        heard += self._listen(cluster, listener, _AFTERWARDS_SECONDS)
        end = self._clock.now()
        if fault.undo is not None:
            fault.undo(cluster.site, node)
            self._console.line(f"{fault.name} on {name} is undone")
        case = f"{fault.name}-{self._number:02d}"
        self._export(
            Line(
                "fault", self._number, fault.name, name, case, onset - _HEALTHY_SECONDS, onset,
                end, tuple(heard), tuple(before), load, speed,
            ),
        )  # fmt: skip

    def _wait_for_finding(
        self, cluster: Cluster, listener: Listener, onset: float
    ) -> list[LiveFinding]:
        heard: list[LiveFinding] = []
        while not heard and (left := onset + _FINDING_SECONDS - self._clock.now()) > 0:
            heard += self._listen(cluster, listener, min(left, _POLL_SECONDS))
        return heard

    def _recover(self, cluster: Cluster, listener: Listener, after: str) -> None:
        """Wait until no finding stands and the job has gone on as before for a minute.

        Raises
        ------
        StackError
            If that takes too long; the next fault would not be independent of this one.
        """
        start = well_since = self._clock.now()
        heard: list[LiveFinding] = []
        # A single slow step, such as that of a checkpoint on a busy disk, is part of health.
        speeds: deque[float] = deque(maxlen=round(_PACE_SECONDS / _POLL_SECONDS))
        while listener.standing or self._clock.now() - well_since < _HEALTHY_SECONDS:
            if self._clock.now() - start > _RECOVERY_SECONDS:
                self._stray(after, start, heard)
                raise StackError(
                    f"{_RECOVERY_SECONDS:g} s after {after}, the job trains at "
                    f"{cluster.steps_per_second():.1f} of usually {self._usual:.1f} steps/s and "
                    f"findings stand for: {', '.join(sorted(listener.standing)) or 'no node'}."
                )
            heard += self._listen(cluster, listener, _POLL_SECONDS)
            speeds.append(cluster.steps_per_second())
            if statistics.median(speeds) < _AS_BEFORE * self._usual:
                well_since = self._clock.now()
        self._stray(after, start, heard)
        self._console.line(
            f"as before after {self._clock.now() - start:.0f} s: {cluster.progress()}"
        )

    def _listen(
        self,
        cluster: Cluster,
        listener: Listener,
        seconds: float,
        speeds: list[float] | None = None,
    ) -> list[LiveFinding]:
        """Return what is newly found within some seconds; ``speeds`` takes in steps a second.

        Raises
        ------
        StackError
            If the detector does not answer any more: silence is not health.
        """
        heard: list[LiveFinding] = []
        began = last_line = self._clock.now()
        while (left := began + seconds - self._clock.now()) > 0:
            self._clock.sleep(min(left, _POLL_SECONDS))
            for finding in listener.poll():
                heard.append(finding)
                self._console.line(f"FINDING: {finding.node} by {finding.metric}", "event")
            if speeds is not None:
                speeds.append(cluster.steps_per_second())
            if listener.unanswered >= _UNANSWERED:
                raise StackError(f"The detector did not answer {_UNANSWERED} times in a row.")
            if self._clock.now() - last_line >= 2 * PROGRESS_SECONDS:
                last_line = self._clock.now()
                self._console.line(cluster.progress(), "quiet")
        return heard

    def _stray(self, after: str, start: float, heard: Sequence[LiveFinding]) -> None:
        if heard:
            end = self._clock.now()
            line = Line(
                "stray", self._number, after, "", "", start, start, end, tuple(heard), (),
                load_average(),
            )  # fmt: skip
            self._log.add(line)

    def _export(self, line: Line) -> None:
        """Write a case and its line; a case that cannot be read is noted and costs only itself."""
        folder = self._folder.cases / line.case
        # An interrupted recording may have left it, without a line.
        shutil.rmtree(folder, ignore_errors=True)
        self._clock.sleep(_WRITTEN_SECONDS)
        try:
            self._write(folder, line, self._folder.config)
        except PeerwatchError as error:
            line = replace(line, note=str(error))
        self._log.add(line)
        delay = "" if line.delay_seconds is None else f" after {line.delay_seconds:.1f} s"
        good = line.outcome == "right" and not line.note
        self._console.line(
            f"{line.case}: {line.outcome}{delay} {line.note}".rstrip(), "good" if good else "bad"
        )

    def _clean(self) -> None:
        """Remove the round's data, unless something in it is worth keeping."""
        lines = self._log.lines[self._before :]
        if all(
            line.kind != "stray" and line.outcome == "right" and not line.note for line in lines
        ):
            shutil.rmtree(self._directory)


def write_case(folder: Path, line: Line, path: Path) -> None:
    """Export a stretch and read it back.

    Parameters
    ----------
    folder
        Where the case goes.
    line
        What was done, and when.
    path
        The detector's configuration: which metrics, and where they are read.

    Raises
    ------
    PeerwatchError
        If Prometheus cannot be read, or the case not be written.
    """
    config = load_config(path)
    truth = Truth(None, (), None, None)
    if line.kind == "fault":
        truth = Truth(line.fault, (line.node,), line.onset - line.start, None)
    stretch = Stretch(JOB_ID, line.start, line.end)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with PrometheusReader(config.prometheus) as reader:
        export_case(folder, stretch, truth, config, reader)
    load_case(folder)
