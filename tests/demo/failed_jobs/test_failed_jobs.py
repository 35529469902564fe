"""Jobs that are made to fail do, and their logs are of no machine."""

import json
import socket
import sys

import pytest

from peerwatch_demo.failed_jobs import __main__ as program
from peerwatch_demo.failed_jobs.case import FailedJob, load_cases
from peerwatch_demo.failed_jobs.neutral import neutral
from peerwatch_demo.failed_jobs.run import JobSucceededError, run_job
from peerwatch_responder.retry.corpus.labels import labels_of_mechanisms

CASES = {each.name: each for each in load_cases()}


def test_every_job_has_a_mechanism_of_the_corpus_and_one_program():
    labels = labels_of_mechanisms()
    assert len(CASES) >= 100
    for case in CASES.values():
        assert case.mechanism in labels
        assert bool(case.code) != bool(case.shell)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing_file_open", "FileNotFoundError: [Errno 2]"),
        ("permission_of_script", "Permission denied"),
        ("cancelled_by_key", "KeyboardInterrupt"),
    ],
)
def test_a_job_fails_as_it_is_made_to(name, text):
    written, folder = run_job(CASES[name])
    assert text in written
    assert folder not in neutral(written, folder)


def test_a_job_that_ends_well_has_no_log():
    with pytest.raises(JobSucceededError, match="ended well"):
        run_job(FailedJob("fine", "bad_data", "shell", shell="true"))


def test_the_machine_is_taken_out():
    text = f"at {socket.gethostname()} 192.0.2.7: {sys.prefix}/lib/x.py /tmp/job-1/train.py"
    assert neutral(text, "/tmp/job-1") == "at node-1 10.0.0.1: /opt/venv/lib/x.py /job/train.py"
    long = "\n".join(map(str, range(500)))
    assert neutral(long, "/tmp/job-1").splitlines()[20] == "[420 lines]"


def test_a_run_goes_on_where_it_was(monkeypatch, tmp_path, capsys):
    path = tmp_path / "real.jsonl"
    monkeypatch.setattr(sys, "argv", ["x", str(path), "--only", "syntax_of_shell"])
    assert program.main() == 0
    assert program.main() == 0
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["label"] == "do_not_retry"
