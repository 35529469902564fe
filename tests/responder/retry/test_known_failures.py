"""What signatures and OpenPAI's table of exits advise on their own texts."""

import re
from pathlib import Path

import pytest

from each_case import each_case
from peerwatch_common.signatures import signature_set
from peerwatch_responder.retry.knowledge import exits as exits_file
from peerwatch_responder.retry.knowledge.exits import shipped_exits
from retry_cases import KNOWLEDGE, advised, traceback
from signature_tables import shipped_signatures
from yaml_files import read_yaml

MESSAGES = read_yaml(Path(__file__).parents[2] / "common" / "signatures" / "messages.yaml")
HEALTHY = Path(signature_set.__file__).with_name("healthy.txt").read_text().splitlines()
SIGNATURES = shipped_signatures()
# Code, how it is stated, and what is advised, for all of OpenPAI's 62 entries.
ENTRIES = read_yaml(exits_file.SHIPPED)["exits"]


def _wanted(name, text):
    signature = SIGNATURES[name]
    if signature.event_class == "X":
        return None
    if name == "kubernetes_pod" and (said := re.search(r'reason"?[:=] ?"?(\w+)', text)):
        return shipped_exits().of_reason(said[1]).ruling.kind
    return KNOWLEDGE.advice.of(name, str(signature.event_class)).kind


def test_signatures_decide_on_what_programs_write():
    wrong = []
    count = 0
    for name, messages in MESSAGES.items():
        for message in messages:
            text = message.get("text") or traceback(message["exception"])
            wanted = _wanted(name, text)
            found = advised(f"{text}\n")
            count += 1
            if found.kind == "do_not_retry" if wanted is None else found.kind != wanted:
                wrong.append((name, text, wanted, found.kind))
    assert count > 175
    assert len(wrong) <= 0.02 * count, wrong


def test_every_line_of_a_healthy_log_is_no_reason_to_stop():
    for line in HEALTHY:
        assert advised(f"{line}\n").kind != "do_not_retry", line
    assert advised("\n".join(HEALTHY) + "\n").reason == "no_failure"


def test_the_table_has_openpais_62_codes():
    assert len({entry["code"] for entry in ENTRIES}) == 62
    kinds = [entry["advice"] for entry in ENTRIES]
    # Of OpenPAI's 32 reactions NEVER_RETRY one is that of a job that ended well.
    assert kinds.count("do_not_retry") == 31
    assert kinds.count("retry_with_backoff") == 1


@each_case("entry", ENTRIES)
def test_exits_are_known_by_their_codes(entry):
    wanted = entry["advice"]
    if entry["code"] == 0:
        assert advised("all is well\n", exit_code=0).reason == "no_failure"
        return
    assert advised("doing this and that\n", exit_code=entry["code"]).kind == wanted
    for code in entry.get("exit", []):
        assert advised("doing this and that\n", exit_code=code).kind == wanted


REASONS = [
    ("Evicted", "", "retry_elsewhere"),
    ("NodeLost", "", "retry_elsewhere"),
    ("DeletionByTaintManager", "", "retry_elsewhere"),
    ("DeletionByPodGC", "", "retry_elsewhere"),
    ("Terminated", "Pod was terminated in response to imminent node shutdown.", "retry_elsewhere"),
    ("PreemptionByScheduler", "", "retry"),
    ("OutOfcpu", "", "retry"),
    ("Preempting", "", "retry"),
    ("DeadlineExceeded", "", "do_not_retry"),
    ("Forbidden", "", "do_not_retry"),
    ("UnexpectedAdmissionError", "", "retry"),
    ("OOMKilled", "", "do_not_retry"),
    ("ContainerCannotRun", "exec: no such file or directory", "do_not_retry"),
    (
        "ContainerCannotRun",
        "nvidia-container-cli: device error: unknown device id: 3",
        "retry_elsewhere",
    ),
    ("ContainerCannotRun", "something else", "retry"),
    ("ImagePullBackOff", "", "do_not_retry"),
]


@pytest.mark.parametrize(("reason", "message", "wanted"), REASONS)
def test_exits_are_known_by_kubernetes_reasons(reason, message, wanted):
    assert advised("step 1\n", reason=reason, message=message).kind == wanted


STATES = [
    ("NODE_FAIL", "retry_elsewhere"),
    ("PREEMPTED", "retry"),
    ("TIMEOUT", "do_not_retry"),
    ("OUT_OF_MEMORY", "do_not_retry"),
    ("CANCELLED by 1000", "ask_user"),
    ("FAILED", "retry"),
]


@pytest.mark.parametrize(("state", "wanted"), STATES)
def test_exits_are_known_by_slurms_states(state, wanted):
    assert advised("step 1\n", state=state).kind == wanted


TEXTS = [
    ("/bin/bash: line 1: torchrunn: command not found", "do_not_retry"),
    (
        "ResourceExhaustedError: 2 root error(s) found. (0) OOM when allocating tensor",
        "do_not_retry",
    ),
    ("[node-1:4242] Signal code: Address not mapped (1)", "do_not_retry"),
    ("failed call to cuInit: CUDA_ERROR_ECC_UNCORRECTABLE", "retry_elsewhere"),
    ("Error: CUDA driver version is insufficient for CUDA runtime version", "do_not_retry"),
    ("dropout supported only in cuDNN v7 and above, error", "do_not_retry"),
    ("THCudaCheck FAIL: cuda runtime error (2) : out of memory", "do_not_retry"),
    ("train.py: error: unrecognized arguments: --lrr 3", "do_not_retry"),
    ("error: bad argument #2 to 'narrow'", "do_not_retry"),
    ("error: perhaps your file is in a different file format", "do_not_retry"),
    ("failed: UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80", "do_not_retry"),
    ("error: EOFError: Ran out of input", "do_not_retry"),
    ("ValueError: Restore called with invalid save path: 'ckpt'", "do_not_retry"),
    ("SyntaxError: invalid syntax", "do_not_retry"),
    ("AttributeError: 'Net' object has no attribute 'foo'", "do_not_retry"),
    ("NameError: name 'foo' is not defined", "do_not_retry"),
    ("ImportError: cannot import name 'x'", "do_not_retry"),
    ("IndexError: list index out of range", "do_not_retry"),
    ("error: SSH barrier reaches max retry count", "do_not_retry"),
    ("Error response from daemon: pull access denied for foo", "do_not_retry"),
    ("nvidia-container-cli: device error: unknown device id: 3", "retry_elsewhere"),
]


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_exits_are_known_by_texts(text, wanted):
    found = advised(f"starting\n{text}\n")
    assert found.kind == wanted
    assert found.root is not None
    assert found.root.text in text
