"""Whatever a log is, there is an answer; nothing that is no failure stops a job."""

import gzip
import io
import json
import random

import pytest

from peerwatch_responder.retry.evidence.foreign import foreign_error
from peerwatch_responder.retry.reading.bounded import Bound, read_ends, read_stream
from peerwatch_responder.retry.reading.elastic import as_log
from peerwatch_responder.retry.reading.files import LogError, read_log, read_logs
from peerwatch_responder.retry.reading.log_text import LogText, rank_in_name
from retry_cases import advised, traceback

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
STEPS = "".join(f"step {number} loss 1.0\n" for number in range(50))
HEALTHY = STEPS + "saving checkpoint\nTraining finished: 0 errors, 0 failed\n"


def noise():
    return random.Random(1).randbytes(200_000)


def test_a_binary_file_is_asked_about():
    found = advised(LogText("core", noise()))
    assert (found.kind, found.reason, found.confidence) == ("ask_user", "no_log", 0.0)
    assert any("no text" in note for note in found.notes)


@pytest.mark.parametrize("text", ["", "\n\n", "\0" * 1000])
def test_an_empty_log_is_asked_about(text):
    assert advised(text).kind == "ask_user"


@pytest.mark.parametrize("text", [HEALTHY, traceback("ValueError: caught") + HEALTHY, STEPS])
def test_a_healthy_log_is_never_stopped(text):
    found = advised(text)
    assert found.kind == "ask_user"
    assert found.confidence < 0.5


@pytest.mark.parametrize("cut", range(5, len(OOM) + len(STEPS), 97))
def test_a_truncated_log_has_an_answer(cut):
    assert advised((STEPS + OOM)[:cut]).kind in {"ask_user", "do_not_retry", "retry"}


def test_lines_of_a_megabyte():
    found = advised("x" * 1_000_000 + "\n" + "error " * 200_000 + "\n" + OOM)
    assert found.signature == "cuda_out_of_memory"
    found = advised("y " * 500_000 + OOM.strip())
    assert found.kind in {"ask_user", "do_not_retry"}


def test_other_encodings():
    assert advised(LogText("a", OOM.encode("utf-16"))).signature == "cuda_out_of_memory"
    german = "Datei für die Prüfung fehlt, Abbruch: Gerät nicht verfügbar\n".encode("latin-1")
    assert advised(LogText("a", german * 20)).kind in {"ask_user", "retry"}


FOREIGN = [
    (
        "Java",
        'Exception in thread "main" java.lang.IllegalStateException: no\n\tat A.b(A:1)\n',
    ),
    ("Java", "Caused by: java.io.IOException: gone\n"),
    ("Go", "panic: runtime error: index out of range [3]\n\ngoroutine 1 [running]:\n"),
    ("Rust", "thread 'main' panicked at src/main.rs:3:5:\nboom\n"),
    ("JavaScript", "TypeError: x is not a function\n    at Object.<anonymous> (/a/b.js:3:1)\n"),
    ("C#", "Unhandled exception. System.NullReferenceException: x\n   at A.B()\n"),
    ("Julia", "ERROR: LoadError: UndefVarError: x not defined\n"),
    ("R", "Error in f(x) : object 'y' not found\nCalls: f\nExecution halted\n"),
    ("Ruby", "main.rb:3:in `foo': undefined method (NoMethodError)\n"),
    ("Perl", "Died at run.pl line 3.\n"),
    ("Lua", "lua: a.lua:3: attempt to index a nil value\n"),
    ("Fortran", "forrtl: severe (174): SIGSEGV, segmentation fault occurred\n"),
]


@pytest.mark.parametrize(("language", "text"), FOREIGN)
def test_errors_of_other_languages_are_a_guess_with_their_line(language, text):
    name, place = foreign_error(f"start\n{text}".encode())
    assert (name, place) == (language, 6)
    found = advised(f"start\n{text}")
    assert found.kind in {"retry", "do_not_retry"}
    assert found.root.text.split()[0] in text
    if found.reason in {"form", "unknown"}:
        assert found.confidence < 0.5


@pytest.mark.parametrize("code", [1, 2, 77, -65, 199, -7999, 10_000])
def test_an_unknown_exit_code_is_retried_with_low_confidence(code):
    found = advised("hello\n", exit_code=code)
    assert found.kind == "retry"
    assert found.confidence < 0.5


JOB = "slurmstepd: error: *** JOB {} ON gpu-1 CANCELLED AT 2026-03-01T10:20:30 DUE TO {} ***\n"


def test_several_jobs_in_one_file():
    text = OOM + JOB.format(1, "TIME LIMIT") + "step 1\n" + JOB.format(2, "PREEMPTION")
    last = advised(text)
    assert last.signature == "slurm_preemption"
    assert last.confidence < 0.6
    assert any("several jobs" in note for note in last.notes)
    first = advised(text, job_id="1")
    assert first.signature == "cuda_out_of_memory"
    assert first.confidence > 0.8


def test_of_several_attempts_in_one_file_the_last_counts():
    launch = "W1124 10:00:00.000000 1 run.py:779] Starting elastic_operator with launch configs:\n"
    text = launch + OOM + launch + "OSError: [Errno 116] Stale file handle\nan error\n"
    assert advised(text).signature == "stale_file_handle"
    # Each node's launcher writes it before anything fails.
    assert advised(launch * 3 + OOM).signature == "cuda_out_of_memory"


def test_a_file_is_read_at_both_ends(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"a" * 100 + b"b" * 10_000 + b"c" * 50)
    log = read_log(path, Bound(100, 50))
    assert (log.head, log.tail, log.skipped_bytes) == (b"a" * 100, b"c" * 50, 10_000)
    with path.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, 2)
        file.write(OOM.encode())
    assert read_log(path).read_bytes == 16 << 20


@pytest.mark.parametrize("size", [0, 10, 149, 150, 151, 5_000])
def test_a_stream_is_kept_as_a_file_is_read(size):
    content = bytes(number % 251 for number in range(size))
    bound = Bound(100, 50)
    assert read_stream(io.BytesIO(content), bound) == read_ends(io.BytesIO(content), size, bound)


def test_many_logs_share_one_bound():
    each = Bound().shared(1024, 128 << 20)
    assert each.head_bytes + each.tail_bytes == 128 << 10
    assert Bound().shared(2, 128 << 20) == Bound()


def test_folders_give_logs_of_the_newest_attempt(tmp_path):
    for attempt in (0, 1):
        for rank in (0, 1):
            folder = tmp_path / "run" / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(OOM)
            (folder / "error.json").write_text(json.dumps({"message": "KeyError: 'x'"}))
    (tmp_path / "train.py").write_text("raise RuntimeError")
    (tmp_path / ".hidden").mkdir()
    logs = read_logs([str(tmp_path)])
    assert len(logs) == 4
    assert {log.rank for log in logs} == {0, 1}
    assert all("attempt_1" in log.name for log in logs)


NAMES = [
    ("a/rank-3.log", 3),
    ("rank_12", 12),
    ("rank0.err", 0),
    ("attempt_0/7/stdout.log", 7),
    ("slurm-4711.out", None),
    ("frank3.log", None),
]


@pytest.mark.parametrize(("name", "rank"), NAMES)
def test_ranks_in_names(name, rank):
    assert rank_in_name(name) == rank


def test_torchelastic_error_files_are_logs():
    stack = traceback("KeyError: 'lr'").rstrip()
    extra = {"py_callstack": stack, "timestamp": "1772360430"}
    content = {"message": "KeyError: 'lr'", "extraInfo": extra}
    log = as_log(json.dumps({"message": content}).encode())
    assert log.startswith(b"2026-03-01T10:20:30Z Traceback")
    found = advised(LogText("error.json", log))
    assert (found.signature, found.root.text) == ("program_error", "KeyError: 'lr'")
    bare = as_log(b'{"message": "ZeroDivisionError: division by zero"}')
    assert advised(LogText("error.json", bare)).signature == "program_error"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": 1}', b'{"message": 3}', b"text"])
def test_what_is_no_error_file(content):
    assert as_log(content) is None


def test_what_cannot_be_read_says_why(tmp_path):
    with pytest.raises(LogError, match=r"nofile.*No such file"):
        read_logs([str(tmp_path / "nofile")])
    with pytest.raises(LogError, match="has no logs"):
        read_logs([str(tmp_path)])
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(b"text"))
    with pytest.raises(LogError, match="zcat"):
        read_logs([str(packed)])
