from __future__ import annotations

import json
import sys
import time

import pytest

from peerwatch_common.web.response import Response
from peerwatch_reliability.__main__ import main
from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import Evidence, Jobs, OutOfService, Window
from peerwatch_reliability.report.books import books_of
from peerwatch_reliability.report.document import document_of
from peerwatch_reliability.report.text import again_text, rate_text, report_lines, worth_text
from peerwatch_reliability.report.view import mttf_marks, mttf_ticks, view_of
from peerwatch_reliability.run.metrics import SPECS, families
from peerwatch_reliability.run.service import Service
from peerwatch_reliability.run.site import REPORT, Site
from peerwatch_reliability.settings.config import ReliabilityConfig
from peerwatch_reliability.sources.prometheus.evidence import NOTHING_OBSERVED, minute_of
from peerwatch_reliability.sources.prometheus.signals import NO_SIGNALS
from peerwatch_reliability.sources.slurm.sacct import SEPARATOR
from reliability_rows import T0, row

DAY = 86_400.0
WINDOW = Window(T0, T0 + 28 * DAY)
CONFIG = ReliabilityConfig(nodes=10)
ROWS = [
    row("1", 1, "node_fail", 0, 600, 10 * DAY, nodes=("n1", "n2"), gpus=16, name="<b>big</b>"),
    row("1", 2, "completed", 10 * DAY, 10 * DAY + 900, 20 * DAY, nodes=("n1", "n3"), gpus=16),
    row("2", 3, "failed", 0, 0, 5 * DAY, nodes=("n4",), name="b"),
    row("3", 4, "completed", 0, 0, 2 * DAY, nodes=("n5",), name="c"),
]
OUT = [
    OutOfService("n1", T0 + 10 * DAY, T0 + 11 * DAY, "not responding"),
    OutOfService("n1", T0 + 22 * DAY, T0 + 22.5 * DAY, "fan"),
]


def books(rows=ROWS, out=OUT, observed=NOTHING_OBSERVED, config=CONFIG):
    return books_of(
        Jobs(rows, out, ("a row cannot be read",)), observed, NO_SIGNALS, WINDOW, config
    )


def test_books_of_a_window():
    found = document_of(books())
    assert (found["jobs"], found["attempts"], found["failures"]) == (3, 4, 1)
    # The failed job is nobody's: nothing was observed.
    assert found["unexplained"] == 1
    rate = found["failures_per_1000_node_days"]
    assert (rate["count"], rate["value"]) == (1, pytest.approx(1000 / 280))
    assert rate["low"] < rate["value"] < rate["high"]
    ettr = found["ettr"]
    assert ettr["low"] < ettr["value"] < ettr["high"]
    assert ettr["source"] == "assumed"
    assert found["goodput_lost_gpu_hours"] == {
        "node_fail": {"first_order": 8.0, "second_order": 0.0}
    }
    (size, *_), (larger, *_) = found["mttf_by_size"][:1], found["mttf_by_size"][1:]
    assert (size["gpus"], size["failures"], size["hours"]["value"]) == ("8", 0, None)
    assert (larger["gpus"], larger["failures"]) == ("16", 1)
    # Ten nodes with eight GPUs, as the jobs held them.
    largest = found["jobs_with_most_gpu_time"][0]
    assert (largest["job_id"], largest["gpus"], largest["restarts"]) == ("1", 16, 1)
    # Less a restart each, and what was not saved when the node failed.
    assert largest["ettr"]["value"] == pytest.approx(
        (20 * DAY - 600 - 900 - 2 * 300 - 1800) / (20 * DAY), abs=1e-6
    )
    assert (largest["idle_gpu_hours"], largest["degradation"]) == (None, None)
    failed, after = largest["attempts"]
    assert (failed["cause"], failed["nodes"]) == ("node_fail", ["n1", "n2"])
    assert (failed["queue_seconds"], failed["unproductive_seconds"]) == (600, 300 + 1800)
    assert (after["link"], after["origin"], after["cause"]) == ("requeued", "none", None)
    for each in (failed, after):
        parts = [each[f"{name}_seconds"] for name in ("queue", "productive", "unproductive")]
        assert sum(parts) == pytest.approx(each["wall_seconds"])
    assert found["out_of_service"][1] == OUT[1]._asdict()
    assert found["expected"]["optimal_checkpoint_minutes"] is None
    gpu = found["components"]["gpu"]
    assert (gpu["per_node"], gpu["failures"], gpu["hours"]["value"]) == (8, 0, None)
    assert found["components"]["host"]["hours"]["value"] == pytest.approx(280 * 24)
    assert found["components"]["network_port"]["hours"] is None
    assert found["missing"][0] == "a row cannot be read"
    assert any("no prometheus" in each for each in found["missing"])
    assert found["incident_totals"]["mean_recovery_minutes"] == pytest.approx(20)
    assert json.loads(json.dumps(found)) is not None


def test_slurm_names_the_node_that_it_lost_and_the_fault_is_one():
    found = books()
    assert found.why["1", 1].node == "n1"
    assert found.lemons.signals["n1"].multi_node_node_fails == 1
    faults = {each.node: each.faults for each in found.lemons.scores}
    assert (faults["n1"], faults["n2"]) == (2, 0)
    # Where two went at once, either may be why; where none did, nobody says.
    twice = [*OUT, OutOfService("n2", T0 + 10 * DAY + 30, None, "not responding")]
    assert books(out=twice).why["1", 1].node == ""
    assert books(out=OUT[1:]).why["1", 1].node == ""


def test_a_fault_that_takes_no_node_out_of_service_counts_too():
    end = T0 + 5 * DAY
    seen = Evidence("xid", "n4", "79", "high", end - 10, end - 10)
    observed = NOTHING_OBSERVED._replace(by_minute={minute_of(end): (seen,)})
    faults = {each.node: each.faults for each in books(observed=observed).lemons.scores}
    assert (faults["n1"], faults["n4"]) == (2, 1)


def test_what_few_nodes_and_returns_say():
    lemons = document_of(books())["lemons"]
    assert again_text(lemons) == (
        "Of 2 returns to service, a fault came again: not known within 1 d, not known within 7 d, "
        "not known within 28 d"
    )
    few = {"base_share": 0.07, "right_share": 1.0, "lift": 33.4, "named_by_first_half": 1}
    assert worth_text(few) == (
        "A list of the first half of the window was right in 1 of the 1 nodes that it named (any "
        "node: 7%)"
    )
    assert "in 3 of the 6 nodes" in worth_text(
        {**few, "right_share": 0.5, "named_by_first_half": 6}
    )
    assert worth_text({**few, "named_by_first_half": 6}).endswith("at 33.4 times the fleet's rate")


def test_times_out_of_service_before_the_window_are_not_listed():
    before = OutOfService("n2", T0 - 9 * DAY, T0 - 8 * DAY, "older")
    stands = OutOfService("n3", T0 - 9 * DAY, None, "for long")
    found = document_of(books(out=[*OUT, before, stands]))["out_of_service"]
    assert [each["reason"] for each in found] == ["for long", "not responding", "fan"]


def test_the_optimal_interval_where_writing_halts():
    """By Young's formula: the square root of twice the write over the rate."""
    config = ReliabilityConfig(nodes=10, assumed={"write_seconds": 60})
    expected = document_of(books(config=config))["expected"]
    rate = expected["nodes"] * expected["failures_per_node_day"] / DAY
    young = (2 * 60 / rate) ** 0.5 / 60
    assert expected["optimal_checkpoint_minutes"] == pytest.approx(young, rel=0.05)
    (line,) = [e for e in report_lines(document_of(books(config=config))) if "optimal" in e]
    assert "where writing halts the job for 1 min" in line


def test_evidence_names_the_cause():
    end = T0 + 5 * DAY
    seen = Evidence("xid", "n4", "79", "high", end - 10, end - 10)
    observed = NOTHING_OBSERVED._replace(by_minute={minute_of(end): (seen,)})
    found = books(observed=observed)
    assert found.causes["pcie"].count == 1
    assert found.why["2", 3].node == "n4"


def test_what_was_never_seen_is_not_known():
    document = document_of(books([], []))
    assert document["ettr"]["value"] is None
    assert document["expected"] is None
    text = "\n".join(report_lines(document))
    assert "ETTR of the cluster: not known" in text
    assert "Failures per 1,000 node-days: none seen: below 10.7" in text
    assert b"Expected ETTR: not known" in view_of(document)


def test_the_view_is_one_file_without_scripts():
    view = view_of(document_of(books())).decode()
    assert "<svg" in view
    assert "1/N line" in view
    assert "Failures per 1,000 node-days" in view
    for word in ("<script", "http://", "https://", "<b>big"):
        assert word not in view


def test_the_view_says_how_the_rate_grows_with_the_size():
    rows = [*ROWS, row("9", 9, "node_fail", 0, 0, DAY, nodes=("n6",), name="d")]
    document = document_of(books(rows))
    assert f"Rate grows as nodes^{document['scaling']['slope']:.2f} [" in view_of(document).decode()


def test_where_sizes_stand_in_the_picture():
    marks = mttf_marks(document_of(books())["mttf_by_size"])
    assert [each.label for each in marks] == ["8", "16"]
    assert marks[0].y is None
    assert marks[1].high <= marks[1].y <= marks[1].low
    assert mttf_marks([]) == mttf_ticks([]) == []


def test_powers_of_ten_are_where_the_marks_say():
    def size(gpus, *hours):
        return {"gpus": gpus, "hours": dict(zip(("low", "value", "high"), hours, strict=True)),
                "line_hours": None}  # fmt: skip

    sizes = [size("8", 100.0, 1000.0, 10_000.0), size("16", 5.0, 100.0, 200.0)]
    ticks = {each.label: each.y for each in mttf_ticks(sizes)}
    first, second = mttf_marks(sizes)
    assert list(ticks) == ["10 h", "100 h", "1,000 h", "10,000 h"]
    assert (first.low, first.y, first.high) == pytest.approx(
        (ticks["100 h"], ticks["1,000 h"], ticks["10,000 h"])
    )
    assert second.y == pytest.approx(ticks["100 h"])


def test_numbers_are_written_in_full():
    rate = {"value": 27_648.0, "low": 0.01234, "high": 63_088.4, "count": 50, "dispersion": 6.1}
    assert rate_text(rate) == "27,648 [0.0123, 63,088] (50 seen, φ 6.1)"


class Request:
    def __init__(self, path, method="GET"):
        self.path, self.method = path, method

    def header(self, _name):
        return ""


@pytest.mark.parametrize("error", [SourceError("sacct ends with status 1"), KeyError("node")])
def test_service_goes_on_after_an_error(error, caplog):
    answers = [error, books()]

    def make(_now):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    service = Service(CONFIG, make)
    service.make()
    assert service.document is None
    assert "no books" in caplog.text
    service.make()
    assert service.document is not None


def test_service_counts_each_failure_once_and_outlives_its_sources():
    now = [WINDOW.end]
    failing = [False]

    def make(_now):
        if failing[0]:
            raise SourceError("sacct ends with status 1")
        return books()

    service = Service(CONFIG, make, lambda: now[0])
    site = Site(service)
    assert site.answer(Request("/")).status == 503
    names = {family.spec.name: family for family in families(service)}
    assert names["peerwatch_reliability_last_success_timestamp_seconds"].rows == [((), 0.0)]
    service.make()
    service.make()
    failing[0] = True
    service.make()
    names = {family.spec.name: dict(family.rows) for family in families(service)}
    assert set(names) == {spec.name for spec in SPECS}
    failures = names["peerwatch_reliability_failures_total"]
    assert failures["16", "node_fail"] == 1
    assert names["peerwatch_reliability_goodput_loss_gpu_seconds_total"] == {
        ("node_fail", "first"): 8 * 3600
    }
    assert names["peerwatch_reliability_recovery_seconds_total"][()] == pytest.approx(1200)
    assert ("all", "expected") in names["peerwatch_reliability_ettr_ratio"]
    assert ("8", "value") not in names["peerwatch_reliability_mttf_seconds"]
    assert ("8", "low") in names["peerwatch_reliability_mttf_seconds"]
    assert names["peerwatch_lemon_score"][("n1",)] > names["peerwatch_lemon_score"][("n5",)]
    assert isinstance(site.answer(Request("/")), Response)
    assert json.loads(site.answer(Request(REPORT)).body)["jobs"] == 3
    assert b"peerwatch_reliability_ettr_ratio{" in site.answer(Request("/metrics")).body
    assert site.answer(Request("/x")).status == 404
    assert site.answer(Request("/", "POST")).status == 405


# Prints what lies beside it, with the separator that is asked for.
FAKE = """
import pathlib, sys
text = pathlib.Path(f"{sys.argv[0]}.txt").read_text()
for each in sys.argv:
    if each.startswith("--delimiter="):
        separator = each.removeprefix("--delimiter=")
        with pathlib.Path(sys.argv[0]).with_name("asked").open("a") as file:
            file.write(repr(separator) + "\\n")
        text = text.replace("\\x1f", separator)
sys.stdout.write(text)
"""


@pytest.fixture
def settings(tmp_path):
    """Return a settings file with a Slurm that answers with a job whose node was lost."""
    now = int(time.time())
    begin, end = now - 90_000, now - 50_000
    rows = [
        ["7", "7", "ann", "NODE_FAIL", begin, begin, begin + 60, end, "00:00:00",
         "gres/gpu=16", "n[1-2]", "odd|name\nline", "/x", "ckpt=30", "sbatch -x n9", "1"],
        ["7", "7", "ann", "RUNNING", end, end, end + 300, "Unknown", "00:00:00",
         "gres/gpu=16", "n[2-3]", "odd|name\nline", "/x", "ckpt=30", "sbatch -x n9", "4"],
    ]  # fmt: skip
    lines = "".join(SEPARATOR.join(map(str, each)) + "\n" for each in rows)
    for name, text in (
        ("sacct", lines),
        ("sacctmgr", f"n1|{end}|{end + 600}|DOWN*|Not | responding\n"),
    ):
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / name).write_text(f"#!{sys.executable}\n{FAKE}")
        (tmp_path / name).chmod(0o755)
    path = tmp_path / "reliability.yaml"
    path.write_text(f"slurm: {{folder: {tmp_path}}}\n")
    return path


def test_report_of_slurm(settings, capsys):
    assert main(["report", "--config", str(settings)]) == 0
    text = capsys.readouterr().out
    assert "3 nodes, 1 jobs, 2 attempts, 1 failures of the infrastructure" in text
    assert "missing: there is no prometheus in the settings" in text
    assert "missing: nodes is not set" in text
    assert "checkpoints and restarts assumed" in text


def test_nobody_can_know_the_separator(settings, capsys):
    """A name that holds it could pass for rows of other jobs."""
    for _ in range(2):
        assert main(["report", "--config", str(settings), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["attempts"] == 2
    first, second = (settings.parent / "asked").read_text().splitlines()
    assert first != second
    assert min(len(first), len(second)) > 16


def test_report_as_json_and_view(settings, capsys):
    assert main(["report", "--config", str(settings), "--format", "json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["failures"] == 1
    assert main(["report", "--config", str(settings), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == json.loads(printed).keys()
    assert main(["report", "--config", str(settings), "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")


def test_lemons_of_slurm(settings, capsys):
    assert main(["lemons", "--config", str(settings), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fleet"] == 3
    assert {each["signal"] for each in found["thresholds"]} >= {"out_count"}
    assert main(["lemons", "--config", str(settings)]) == 0
    assert "Lemons: 0 of 3 nodes" in capsys.readouterr().out


def test_what_is_wrong_is_said(settings, capsys):
    (settings.parent / "sacct").unlink()
    assert main(["report", "--config", str(settings)]) == 1
    assert "No such file or directory; see slurm.folder" in capsys.readouterr().err
    settings.write_text("window_day: 3\nlemons: {largest_share: 2}\n")
    assert main(["run", "--check", "--config", str(settings)]) == 2
    errors = capsys.readouterr().err
    assert "window_day: unknown key 'window_day'; did you mean 'window_days'?" in errors
    assert "lemons.largest_share: should be less than or equal to 1, not 2" in errors
    settings.write_text("{}\n")
    assert main(["run", "--check", "--config", str(settings)]) == 0
