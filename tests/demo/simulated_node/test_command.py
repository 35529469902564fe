"""The exporter over a simulated node: the real one, its driver process and its web server.

What every scenario shows is seen where all of them run, in e2e/test_alerts_on_demo_nodes.py.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from demo_signs import SIGNS, samples_of
from peerwatch_demo.exporter import main
from peerwatch_demo.simulated_node.scenarios import SCENARIOS, SUMMARIES
from peerwatch_exporter.collector import all_metrics

CATALOG = all_metrics()

COMMAND = (sys.executable, "-m", "peerwatch_demo.exporter")
# Generous: the machine may be busy, and some collectors run every 10 s.
LIMIT_SECONDS = 180
SAMPLED = ("sampler_", "nic_burst_", "gpu_burst_")
# The sampler asks the real kernel for statistics of drivers, which has no such interface.
NOT_SAMPLED = {"nic_burst_pfc_pause_frames_per_second"}
SAMPLER = """\
sampler:
  interval_milliseconds: 20
  counters: [transmit_bytes, receive_bytes, transmit_packets, receive_packets, cnp_sent,
             cnp_handled, ecn_marked_packets]
"""


@contextlib.contextmanager
def exporter(log, *arguments):
    """Run the exporter; yield a function that returns the samples of an exposition."""
    command = [*COMMAND, *arguments, "--listen", "127.0.0.1:0"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file)
    try:
        port = wait_for(lambda: re.search(r"\bserving\b.*\bport=(\d+)", log.read_text()))[1]

        def samples(path="/metrics"):
            url = f"http://127.0.0.1:{port}{path}"
            with urllib.request.urlopen(url, timeout=300) as answer:
                return samples_of(answer.read().decode())

        yield samples
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 0, log.read_text()


def wait_for(question):
    """Return the first true answer."""
    until = time.monotonic() + LIMIT_SECONDS
    while not (answer := question()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.2)
    return answer


def test_hung_gpu_costs_the_exposition_nothing_else(tmp_path):
    with exporter(tmp_path / "log", "hung_gpu", "--onset", "3") as samples:
        wait_for(lambda: SIGNS["hung_gpu"]({}, samples()))
        restarts = wait_for(
            lambda: sum(
                value
                for key, value in samples().items()
                if key[0] == "exporter_nvml_restarts_total"
            )
        )
        fast = samples("/metrics/fast")

    assert restarts >= 1
    assert fast["fast_up",] == 1


def test_sampler_of_a_demonstration_shows_every_metric_of_its_own(tmp_path):
    config = tmp_path / "exporter.yaml"
    config.write_text(SAMPLER)
    arguments = ("healthy", "--config", str(config))
    missing = {name for name in CATALOG if name.startswith(SAMPLED)} - NOT_SAMPLED
    with exporter(tmp_path / "log", *arguments) as samples:

        def all_shown():
            missing.difference_update(key[0] for key in samples())
            return not missing

        with contextlib.suppress(AssertionError):
            wait_for(all_shown)

    assert set() == missing


def test_temporary_files_are_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with exporter(tmp_path / "log", "healthy") as samples:
        samples()
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("peerwatch-demo")]

    assert ["log"] == [path.name for path in tmp_path.iterdir()]


def test_help_names_every_scenario():
    text = subprocess.run([*COMMAND, "--help"], capture_output=True, check=True, text=True).stdout

    for name, summary in SUMMARIES.items():
        assert re.search(rf"^ +{name} +{re.escape(summary)}$", text, re.MULTILINE)


def test_unknown_scenario_is_refused_with_the_names_there_are(tmp_path):
    command = [*COMMAND, "no_such_thing"]
    run = subprocess.run(command, capture_output=True, check=False, text=True, cwd=Path.cwd())

    assert run.returncode == 2
    assert "no_such_thing" in run.stderr
    assert all(name in run.stderr for name in SCENARIOS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "required: SCENARIO"),
        (["healthy", "--onset", "nan"], "nan is no number of seconds"),
        (["healthy", "--onset=-inf"], "-inf is no number of seconds"),
        (["healthy", "--seed", "one"], "invalid int value: 'one'"),
        (["healthy", "--web.config"], "unrecognized arguments: --web.config"),
    ],
)
def test_impossible_flags_end_the_process_with_2(arguments, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 2 == ended.value.code
    assert text in capsys.readouterr().err


def test_it_needs_no_more_than_the_base_install():
    code = (
        "import sys\n"
        "from peerwatch_demo.exporter import main\n"
        "import peerwatch_demo.simulated_node.node, peerwatch_demo.simulated_node.driver\n"
        "assert 0 == main(['healthy', 'bench', '--seconds', '1', '--json'])\n"
        "heavy = {'numpy', 'numba', 'torch', 'requests', 'flask', 'peerwatch_detector'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.splitlines()[-1]
