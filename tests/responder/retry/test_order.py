"""In which order signatures, history, diagnosis and model decide."""

import pytest

from peerwatch_responder.retry.answer import Before
from peerwatch_responder.retry.assessment.diagnosis import Diagnosis
from peerwatch_responder.retry.history.recurrence import Recurrence
from peerwatch_responder.retry.opinion import ModelOpinion
from retry_cases import advised, traceback

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
ECC = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
CRASH = "Fatal Python error: Segmentation fault\n"
LOST = "gpu-1:10:11 [0] NCCL WARN socketProgress: Connection closed by remote peer gpu-3<4242>\n"
STALE = "OSError: [Errno 116] Stale file handle: '/data'\nstep error\n"
PREEMPTED = (
    "slurmstepd: error: *** JOB 4711 ON gpu-1 CANCELLED AT 2026-03-01T10:20:30 DUE TO PREEMPTION "
    "***\n"
)
OWN = traceback("RuntimeError: the frobnicator is not in the mood")


def stuck(times, correction=None):
    before = tuple(Before(100.0 + number, "retry", None) for number in range(times))
    return Recurrence(before, times, correction)


NODE = Diagnosis("gpu_memory", "hardware", "sure", "isolate", ("node-3",))
USER = Diagnosis("user_code", "user", "likely", "ask")
RESTART = Diagnosis("nccl_timeout", "software", "likely", "restart")
UNDECIDED = Diagnosis("unknown", "unknown", "undecided", "inspect")


class Model:
    def __init__(self, retry, confidence):
        self.opinion = ModelOpinion(retry, confidence, 0.25, ("the frobnicator",), "test-1")
        self.asked = []

    def assess(self, lines):
        self.asked.append(list(lines))
        return self.opinion


AGAIN = {"past": stuck(3), "diagnosis": NODE}
BOTH = {"diagnosis": NODE, "model": Model(0.0, 1.0)}
NEVER = {"past": stuck(0, "do_not_retry")}
# Name, log, what else is known, advice, reason.
ORDER = [
    ("a signature decides", OOM, {}, "do_not_retry", "signature"),
    ("a signature before the diagnosis", OOM, {"diagnosis": NODE}, "do_not_retry", "signature"),
    ("a signature before the model", OOM, {"model": Model(0.9, 0.9)}, "do_not_retry", "signature"),
    ("a node's fault", ECC, {}, "retry_elsewhere", "signature"),
    ("a node's fault, on other nodes as well", ECC, {"past": stuck(3)}, "ask_user", "history"),
    ("a crash has one more try", CRASH, {}, "retry", "signature"),
    ("a crash that came again", CRASH, {"past": stuck(1)}, "do_not_retry", "history"),
    ("preemption has no limit", PREEMPTED, {"past": stuck(50)}, "retry", "signature"),
    ("a person's word first", OOM, {"past": stuck(0, "retry")}, "retry", "correction"),
    ("a person's stop", PREEMPTED, NEVER, "do_not_retry", "correction"),
    ("a symptom: the diagnosis", LOST, {"diagnosis": NODE}, "retry_elsewhere", "diagnosis"),
    ("a symptom: the user's", LOST, {"diagnosis": USER}, "do_not_retry", "diagnosis"),
    ("a symptom: start again", LOST, {"diagnosis": RESTART}, "retry", "diagnosis"),
    ("a symptom: undecided", LOST, {"diagnosis": UNDECIDED}, "retry", "signature"),
    ("a symptom alone", LOST, {}, "retry", "signature"),
    ("a symptom that came again", LOST, {"past": stuck(3)}, "do_not_retry", "history"),
    ("history before the diagnosis", LOST, AGAIN, "do_not_retry", "history"),
    ("the diagnosis before the model", OWN, BOTH, "retry_elsewhere", "diagnosis"),
    ("the model stops", OWN, {"model": Model(0.05, 0.9)}, "do_not_retry", "model"),
    ("the model retries", OWN, {"model": Model(0.9, 0.9)}, "retry", "model"),
    ("the model is between", OWN, {"model": Model(0.4, 0.9)}, "retry", "signature"),
    ("the model is unsure", OWN, {"model": Model(0.0, 0.3)}, "retry", "signature"),
    ("nobody knows", OWN, {}, "retry", "signature"),
    ("nobody knows, twice", OWN, {"past": stuck(2)}, "do_not_retry", "history"),
    ("no words of failure, exit code 1", "hello\n", {"exit_code": 1}, "retry", "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "log", "known", "kind", "reason"), ORDER, ids=[c[0] for c in ORDER]
)
def test_the_order(name, log, known, kind, reason):
    found = advised(log, **known)
    assert (found.kind, found.reason) == (kind, reason)
    assert 0.0 <= found.confidence <= 1.0
    # Whatever stops a job quotes it.
    if kind == "do_not_retry":
        assert found.lines


def test_a_stop_quotes_lines_of_this_log():
    for name, log, known, kind, reason in ORDER:
        found = advised(log, **known)
        if kind == "do_not_retry" and reason != "model":
            assert all(line.text.split()[0] in log for line in found.lines), name


def test_the_model_is_shown_the_end_of_the_log_without_prefixes():
    model = Model(0.9, 0.9)
    advised("step one\n" + "".join(f"[rank1]: {line}\n" for line in OWN.splitlines()), model=model)
    (shown,) = model.asked
    assert shown[0] == "step one"
    assert "RuntimeError: the frobnicator is not in the mood" in shown


def test_storage_waits_longer_each_time():
    waits = [advised(STALE, past=stuck(times)).wait_seconds for times in range(3)]
    assert waits == [300.0, 600.0, 1200.0]


def test_the_node_of_the_fault_is_isolated():
    found = advised(PREEMPTED.replace("gpu-1", "gpu-7").replace("PREEMPTION", "NODE FAILURE"))
    assert (found.kind, found.isolate) == ("retry_elsewhere", ("gpu-7",))
    assert "gpu-7" in found.text
