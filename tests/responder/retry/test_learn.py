"""The command learn: repeatable, resumable, with corrections, voted labels, and a report."""

import json

import pytest

from peerwatch_responder.__main__ import main
from peerwatch_responder.retry.corpus.read import shipped
from peerwatch_responder.retry.learning import command
from peerwatch_responder.retry.learning.sources import LearnError, corrections, unlabelled_logs
from peerwatch_responder.retry.model.store import load_model

FEW = [text for text in shipped() if text.source in {"jax", "slurm", "gloo"}]


@pytest.fixture(autouse=True)
def few_texts(monkeypatch):
    monkeypatch.setattr(command, "shipped", lambda: list(FEW))


def report(capsys, *arguments):
    assert main(["learn", "--json", "--groups", "3", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_same_is_learnt_twice(capsys, tmp_path):
    first = report(capsys, "--output", tmp_path / "a.npz")
    second = report(capsys, "--output", tmp_path / "b.npz")
    assert first["digest"] == second["digest"]
    assert first["texts"] == len(FEW)
    assert first["left_out_in"] == 3
    assert load_model(tmp_path / "a.npz").assess(FEW[0].lines) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_corrections_are_learnt_and_the_last_one_counts(capsys, tmp_path):
    history = tmp_path / "retry.jsonl"
    row = {
        "kind": "correction",
        "fingerprint": "f1",
        "advice": "retry",
        "text": "flux capacitor error: not aligned",
    }
    rows = [row, {**row, "advice": "do_not_retry"}, {**row, "kind": "advice", "fingerprint": "f2"}]
    history.write_text("".join(json.dumps(each) + "\n" for each in rows) + '{"kind": "corr')
    (text,) = corrections(history)
    assert (text.label, text.mechanism) == ("do_not_retry", "corrected/f1")
    found = report(capsys, "--history", history, "--output", tmp_path / "a.npz")
    assert found["corrections"] == 1
    assert found["texts"] == len(FEW) + 1


def test_networks_vote_on_logs_without_a_label(capsys, tmp_path):
    pytest.importorskip("torch")
    logs = tmp_path / "logs"
    logs.mkdir()
    for number, text in enumerate(FEW[:12]):
        (logs / f"{number:02}.log").write_text(text.text)
    (logs / "empty.log").touch()
    (logs / "core").write_bytes(b"\x7fELF\0\0\0")
    found = report(capsys, logs, "--passes", "25", "--output", tmp_path / "a.npz")
    assert found["logs_without_label"] == 12
    assert 0 < sum(found["voted"].values()) <= 12
    assert load_model(tmp_path / "a.npz", "sibylla").assess(FEW[0].lines) is not None


def test_mistakes_are_told(capsys, tmp_path):
    assert main(["learn", "--output", str(tmp_path)]) == 1
    assert "its folder must exist" in capsys.readouterr().err
    with pytest.raises(LearnError, match="cannot be read"):
        corrections(tmp_path / "none.jsonl")
    with pytest.raises(LearnError, match="cannot be read"):
        unlabelled_logs([tmp_path / "none.log"])


def test_a_number_that_cannot_be_learnt_with_is_a_mistake(capsys):
    for arguments in (["--groups", "1"], ["--groups", "-2"], ["--passes", "0"]):
        with pytest.raises(SystemExit):
            main(["learn", *arguments])
        assert arguments[0] in capsys.readouterr().err


def test_a_file_of_scores_that_cannot_be_written_is_told_before_the_work(capsys, tmp_path):
    kept = tmp_path / "none" / "scores.jsonl"
    assert main(["learn", "--evaluate", "--groups", "3", "--kept", str(kept)]) == 1
    assert f"{kept}: cannot be written: No such file" in capsys.readouterr().err


def test_a_folder_that_cannot_be_read_is_told(monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(LearnError, match="cannot be read: Permission denied"):
        unlabelled_logs([tmp_path])


def test_a_long_log_is_read_at_both_ends(tmp_path):
    path = tmp_path / "long.log"
    path.write_text("the first line\n" + "step\n" * 200_000 + "the last line\n")
    (lines,) = unlabelled_logs([path])
    assert (lines[0], lines[-1]) == ("the first line", "the last line")
    assert sum(map(len, lines)) < 600_000


def test_an_evaluation_prints_its_table(capsys):
    assert main(["learn", "--evaluate", "--groups", "3"]) == 0
    table = capsys.readouterr().out
    assert "| rules, then TF-IDF + logistic regression |" in table
