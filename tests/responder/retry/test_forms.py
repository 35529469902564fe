"""What the form of a line says, where no signature knows it."""

import re

import pytest

from peerwatch_responder.retry.assessment.assess import Sources, assess
from peerwatch_responder.retry.assessment.diagnosis import Diagnosis
from peerwatch_responder.retry.evidence.observed import observe
from peerwatch_responder.retry.history.recurrence import Recurrence
from peerwatch_responder.retry.knowledge.forms import form_of, shipped_forms
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.log_text import LogText
from retry_cases import KNOWLEDGE


def advised(text, remember=lambda *_: Recurrence(), diagnosis=None):
    observed = observe([LogText("log", text.encode())], KNOWLEDGE.table)
    sources = Sources(remember, lambda: diagnosis)
    return assess(observed, JobFacts(), KNOWLEDGE, sources)


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("INVALID_ARGUMENT: the batch has 3 rows", "rpc_staying"),
        ("UNAVAILABLE: the coordinator went away", "rpc_passing"),
        ("requests.exceptions.HTTPError: 503 Server Error for url: x", "server_busy"),
        ("requests.exceptions.HTTPError: 403 Client Error for url: x", "request_refused"),
        ("status code: 429, retries left: 0, failed", "server_busy"),
        ("bash: nvcc: command not found", "missing_thing"),
        ("kernel.cu:12:7: error: identifier is what", "wrong_form"),
        ("train.py: error: the following arguments are required: --data", "wrong_form"),
        ("acme.errors.ConfigParseError: line 3", "exception_class"),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", "name_not_resolved"),
        ("E: Could not get lock /var/lib/apt/lists/lock", "held_by_another"),
        ("free(): invalid pointer", "crash"),
        ("RuntimeError: the mask must have two dimensions", "contract"),
        ("panic: runtime error: invalid memory address or nil pointer", "other_runtime"),
        ("epoch 3 of 10, loss 2.31, 512 samples", None),
        ("saved checkpoint to /data/step_100.pt", None),
    ],
)
def test_forms(line, form):
    found = form_of(line.encode(), shipped_forms())
    assert (found and found.name) == (form and f"form_{form}")


def test_a_timeout_of_a_request_that_would_be_refused_passes():
    """What passes counts before what stays, wherever both are said."""
    line = b"HTTPError: 404 Not Found, after the connection timed out"
    assert form_of(line, shipped_forms()).ruling.kind == "retry_with_backoff"


def test_an_image_is_as_passing_as_what_its_registry_answered():
    lines = (
        "slurmstepd: error: pyxis: child 4242 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis:     [ERROR] URL https://registry.example/v2/llm/manifests/1 "
        "returned error code: "
    )
    assert advised(f"{lines}429 Too Many Requests\n").kind == "retry_with_backoff"
    assert advised(f"{lines}401 Unauthorized\n").kind == "do_not_retry"


def test_each_form_compiles_and_no_stop_is_sure():
    for form in shipped_forms():
        assert all(re.compile(text) for text in form.texts)
        assert form.ruling.confidence <= 0.85


def test_a_form_decides_and_is_quoted():
    advice = advised("loading\nworker 3 failed: option --depth is not supported here\n")
    assert (advice.kind, advice.reason) == ("do_not_retry", "form")
    assert advice.lines[0].text == "worker 3 failed: option --depth is not supported here"
    assert advice.confidence < 0.85


def test_the_earliest_line_counts():
    lines = ("fatal: no such option: --x", "error: connection refused")
    assert advised("\n".join(lines) + "\n").kind == "do_not_retry"
    assert advised("\n".join(reversed(lines)) + "\n").kind == "retry_with_backoff"


def test_a_signature_and_a_persons_word_outrank_it():
    text = "CUDA error: an illegal memory access was encountered\nfatal: no such option: --x\n"
    assert advised(text).reason == "signature"
    corrected = advised("fatal: no such option: --x\n", lambda *_: Recurrence(correction="retry"))
    assert (corrected.kind, corrected.reason) == ("retry", "correction")


def test_the_diagnosis_of_the_same_incident_outranks_it():
    diagnosis = Diagnosis("gpu_lost", "device", "sure", "isolate", ("n3",))
    advice = advised("fatal: no such option: --x\n", diagnosis=diagnosis)
    assert (advice.kind, advice.reason, advice.isolate) == (
        "retry_elsewhere",
        "diagnosis",
        ("n3",),
    )


def test_what_follows_a_symptom_is_not_its_reason():
    symptom = (
        "[rank1]: [E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
    )
    stop = "fatal: no such option: --x\n"
    assert advised(symptom + stop).signature == "collective_timeout"
    assert advised(stop + symptom).reason == "form"


def test_steps_survive_a_form():
    steps = "".join(f"step {number} loss 2.0\n" for number in range(1, 9))
    assert advised("fatal: no such option: --x\n" + steps).reason == "no_failure"
