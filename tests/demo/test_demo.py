"""What the person chooses, sees first, and gets as an exit code."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import yaml

from peerwatch_demo import __main__ as entry
from peerwatch_demo.cluster.cluster import node_names, progress_text
from peerwatch_demo.cluster.detector import detector_config, follow_training
from peerwatch_demo.cluster.faults import FAULTS
from peerwatch_demo.cluster.settings import Patience, Settings
from peerwatch_demo.run import hold, sentence
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.report import Event
from peerwatch_demo.stack.servers import Stack, StackError

ROOT = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    """A text stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


def test_choices_come_from_the_environment() -> None:
    chosen = Settings.from_environment(
        {"FAULT": " memory_hog ", "SEED": "7", "HOLD": "1", "NO_NAMESPACES": "yes"}
    )

    assert Settings(fault="memory_hog", seed="7", hold=True, no_namespaces=True) == chosen


def test_without_room_for_its_files_it_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(entry, "catch_signals", lambda: None)
    terminal = Terminal()
    begun: list[Path] = []

    def run(directory: Path) -> bool:
        begun.append(directory)
        return True

    code = entry.carry_out(run, Console(terminal, {}), keep=False, room_bytes=1e18)

    assert (1, [], []) == (code, begun, list(tmp_path.iterdir()))
    assert "needs 1,000,000,000,000 MB. Name another folder: TMPDIR=" in terminal.getvalue()


@pytest.mark.parametrize("text", ["", "0", "no", "False"])
def test_switches_can_be_off(text: str) -> None:
    assert Settings() == Settings.from_environment({"HOLD": text, "NO_NAMESPACES": text})


def test_a_wrong_fault_exits_with_2_and_names_those_that_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = entry.main({"FAULT": "slow_nic", "NO_NAMESPACES": "1"})

    printed = capsys.readouterr()
    assert 2 == code
    assert "" == printed.out
    assert "NO_NAMESPACES is set" in printed.err
    assert "cpu_contention, stopped_process, killed_node, memory_hog" in printed.err


def test_the_introduction_says_what_is_shortened_and_to_what() -> None:
    text = entry.introduction(Settings(), FAULTS[0], None)

    assert "must last 20 s here, 240 s in production" in text
    assert "8 network namespaces" in text


def test_the_introduction_does_not_name_the_faulty_node() -> None:
    text = entry.introduction(Settings(seed="1"), FAULTS[1], "not root")

    assert not [name for name in node_names(8) if name in text]
    assert "no network namespaces: not root" in text


@pytest.mark.parametrize("namespaces", [True, False])
def test_the_detector_accepts_its_configuration(namespaces: bool, tmp_path: Path) -> None:
    config = pytest.importorskip("peerwatch_detector.config")
    path = tmp_path / "detector.yaml"
    path.write_text(
        detector_config(
            "http://127.0.0.1:1", 2, tmp_path / "m.npz", Patience(), namespaces=namespaces
        )
    )

    loaded = config.load_config(path)

    names = [metric.name for metric in loaded.detection_metrics()]
    network = ["tcp_retransmissions", "tcp_send_queue"] if namespaces else []
    assert ["heartbeat_age", *network, "cpu_usage", "memory_usage"] == names
    assert Patience().continuity_seconds == loaded.continuity.threshold_seconds


def test_shipped_times_are_told_as_they_are() -> None:
    config = pytest.importorskip("peerwatch_detector.config")
    shipped, patience = config.DetectorConfig(), Patience()

    assert shipped.continuity.threshold_seconds == patience.shipped_continuity_seconds
    assert shipped.absent.threshold_seconds == patience.shipped_absent_seconds


def test_what_the_training_prints_is_passed_on_to_the_last_line(tmp_path: Path) -> None:
    script = "import time; print('cpu_usage done', flush=True); time.sleep(0.3); print('written')"
    said: list[str] = []
    with Stack(tmp_path) as stack:
        follow_training(stack.start("train", [sys.executable, "-c", script]), said.append)

    assert ["cpu_usage done", "written"] == said


def test_a_training_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('no samples')"]

    with Stack(tmp_path) as stack, pytest.raises(StackError, match=r"train failed:\nno samples"):
        follow_training(stack.start("train", failing), lambda _: None)


def test_without_models_the_configuration_names_none() -> None:
    config = yaml.safe_load(
        detector_config("http://127.0.0.1:1", 2, None, Patience(), namespaces=True)
    )

    assert "models" not in config


def test_lines_carry_the_seconds_since_the_start() -> None:
    out, times = io.StringIO(), iter([100.0, 112.34])
    Console(out, {}, clock=lambda: next(times)).line("page", "good")

    assert "  12.3 s  page\n" == out.getvalue()


@pytest.mark.parametrize(
    ("output", "environment", "colored"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
    ],
    ids=["terminal", "no-color", "pipe"],
)
def test_colour_only_on_a_terminal_that_wants_it(
    output: io.StringIO, environment: dict[str, str], colored: bool
) -> None:
    Console(output, environment).text("page", "good")

    assert colored == ("\x1b[32m" in output.getvalue())


def test_when_nobody_reads_any_more_it_is_said_once() -> None:
    class Unread(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    console = Console(Unread(), {})

    with pytest.raises(BrokenPipeError):
        console.text("page")
    console.text("taken down")


@pytest.mark.parametrize("kind", ["fault", "candidate", "finding", "alert", "page"])
def test_every_event_has_a_sentence_with_the_node(kind: str) -> None:
    assert "node-3" in sentence(Event(kind, 0.0, "node-3", "cpu_usage"))  # type: ignore[arg-type]


def test_a_training_that_stands_still_is_not_reported_as_running() -> None:
    last = {"step": 410.0, "steps_per_second": 3.8, "loss": 2.1}

    assert "no step yet" == progress_text({}, 60)
    assert "step 410, 3.8 steps/s, loss 2.10" == progress_text(last, 1.0)
    assert "step 410, and nothing new for 30 s" == progress_text(last, 30.0)


def test_a_node_that_vanished_is_called_absent() -> None:
    assert "candidate: node-3 is absent" == sentence(Event("candidate", 0.0, "node-3", "absent"))
    assert "node-3 is flagged, it is absent" in sentence(Event("finding", 0.0, "node-3", "absent"))


@pytest.mark.parametrize(
    ("number", "printed"), [(signal.SIGTERM, "Terminated SIGTERM"), (signal.SIGINT, "Ctrl-C")]
)
def test_a_second_signal_does_not_disturb_the_taking_down(
    number: signal.Signals, printed: str
) -> None:
    script = """
        import os, signal, sys, time
        from peerwatch_demo.stack.signals import Terminated, catch_signals
        catch_signals()
        try:
            try:
                os.kill(os.getpid(), int(sys.argv[1]))
                time.sleep(60)
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    os.kill(os.getpid(), number)
                time.sleep(0.05)
                print("taken down")
        except Terminated as error:
            print("Terminated", error)
        except KeyboardInterrupt:
            print("Ctrl-C")
    """
    paths = os.pathsep.join(str(ROOT / part) for part in ("detector", "exporter"))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(int(number))],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert ["taken down", printed] == done.stdout.splitlines()


def test_ctrl_c_while_the_last_lines_are_printed_ends_what_is_held_up() -> None:
    class Interrupted(io.StringIO):
        """A stream at whose last line somebody presses Ctrl-C."""

        def write(self, text: str) -> int:
            written = super().write(text)
            if "detector" in text:
                raise KeyboardInterrupt
            return written

    stream = Interrupted()

    hold(Console(stream, {}), {"detector": "http://127.0.0.1:1"})

    assert "HOLD: everything stays up until Ctrl-C." in stream.getvalue()
