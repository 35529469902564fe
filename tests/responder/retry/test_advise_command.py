"""The command, and the responder that asks before it starts a job again."""

import json
import threading

import pytest

from peerwatch_responder.__main__ import main
from peerwatch_responder.advice import Job
from peerwatch_responder.retry.adviser import Adviser
from peerwatch_responder.retry.before_restart import LogAdvisor, logs_of
from peerwatch_responder.retry.history import counts as counting
from peerwatch_responder.retry.history.counts import AdviceCounts
from peerwatch_responder.retry.history.row import HistoryRow, parse_row
from peerwatch_responder.retry.history.store import History
from peerwatch_responder.retry.metrics import families
from peerwatch_responder.retry.reading.cluster_jobs import ClusterJob
from peerwatch_responder.retry.reading.facts import JobFacts
from retry_cases import KNOWLEDGE, traceback

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
ECC = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
STALE = "OSError: [Errno 116] Stale file handle: '/data'\n"
STATUS = [(OOM, 20), (ECC, 10), (STALE, 11), (traceback("RuntimeError: x"), 0), ("fine\n", 21)]


@pytest.mark.parametrize(("text", "status"), STATUS)
def test_the_exit_status_says_the_advice(tmp_path, capsys, text, status):
    log = tmp_path / "a.log"
    log.write_text(text)
    assert main(["advise", str(log), "--no-history", "--no-model", "--json"]) == status
    found = json.loads(capsys.readouterr().out)
    assert found["exit_status"] == status
    assert found["version"] == 1


def test_the_text_quotes_the_line(tmp_path, capsys):
    log = tmp_path / "rank-3.log"
    log.write_text("start\n" + OOM)
    assert main(["advise", str(log), "--history", str(tmp_path / "h")]) == 20
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("DO NOT RETRY")
    assert any("rank-3.log:2 rank 3: torch.OutOfMemoryError" in line for line in lines)


def test_a_correction_by_command(tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text(OOM)
    history = ["--history", str(tmp_path / "h")]
    assert main(["advise", str(log), *history, "--correct", "retry", "--note", "x"]) == 0
    assert main(["advise", str(log), *history]) == 0
    assert "correction" in capsys.readouterr().out


WRONG = [
    ([], 2, "nothing is said"),
    (["--slurm-job-id", "1", "--pod", "a/b"], 2, "two jobs"),
    (["x", "--pods-directory", "/"], 2, "--pod"),
    (["x", "--correct", "retry", "--no-history"], 2, "--no-history"),
    (["/nonexistent/x"], 1, "No such file"),
    (["--slurm-job-id", "nonsense"], 1, "no job id"),
]


@pytest.mark.parametrize(("flags", "status", "text"), WRONG)
def test_mistakes_have_their_own_status(capsys, flags, status, text):
    assert main(["advise", *flags]) == status
    assert text in capsys.readouterr().err


def advisor(tmp_path, patterns=()):
    facts = JobFacts(job="4711", job_id="4711")
    adviser = Adviser(KNOWLEDGE, History(tmp_path / "h"), clock=lambda: 5.0)
    return LogAdvisor(adviser, lambda _job: ClusterJob((), facts), patterns)


JOB = Job("", "4711", "node-1", 100.0)


TOLD = [
    (OOM, "stop", 0),
    (ECC, "retry_elsewhere", 0),
    (STALE, "retry_later", 300),
    ("ok\n", "retry", 0),
]


@pytest.mark.parametrize(("text", "verdict", "seconds"), TOLD)
def test_the_responder_is_told(tmp_path, text, verdict, seconds):
    (tmp_path / "job-4711.log").write_text(text)
    found = advisor(tmp_path, [f"{tmp_path}/job-{{job_id}}.log"]).advise(JOB)
    assert (found.verdict, found.wait_seconds) == (verdict, seconds)
    if verdict == "stop":
        assert "CUDA out of memory" in found.text


def test_a_job_without_logs_is_started_as_the_rule_says(tmp_path):
    assert advisor(tmp_path).advise(JOB).verdict == "retry"


def test_names_of_jobs_are_no_patterns(tmp_path):
    (tmp_path / "secret.log").write_text(OOM)
    for name in ("*", "..", "", "../" + tmp_path.name + "/secret"):
        assert logs_of([f"{tmp_path}/{{job_id}}.log"], name) == []


def test_advice_is_counted_from_the_history(tmp_path):
    counts = AdviceCounts(tmp_path / "h")
    assert counts.read() == {}
    (tmp_path / "4711.log").write_text(OOM)
    asked = advisor(tmp_path, [f"{tmp_path}/{{job_id}}.log"])
    asked.advise(JOB)
    assert counts.read() == {("do_not_retry", "signature"): 1}
    asked.advise(JOB)
    with (tmp_path / "h").open("ab") as file:
        file.write(b'{"kind": "adv')
    assert counts.read() == {("do_not_retry", "signature"): 2}
    (sample,) = families(counts.read())[0].samples
    assert sample.value == 2
    (tmp_path / "h").unlink()
    assert counts.read() == {("do_not_retry", "signature"): 2}


def test_two_who_scrape_at_once_count_what_is_new_once(tmp_path, monkeypatch):
    History(tmp_path / "h").append(
        HistoryRow("advice", 1.0, "id", "j", "a", "root", "retry", "signature")
    )
    counts, others = AdviceCounts(tmp_path / "h"), []

    def while_another_reads(line):
        if not others:
            others.append(threading.Thread(target=counts.read))
            others[0].start()
            # It must wait; where it need not, it has ended by now.
            others[0].join(1)
        return parse_row(line)

    monkeypatch.setattr(counting, "parse_row", while_another_reads)
    counts.read()
    others[0].join(300)
    assert {("retry", "signature"): 1} == counts.read()
