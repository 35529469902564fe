"""How the models see a log: selected lines, words without numbers."""

import pytest

from peerwatch_responder.retry.text.selection import select
from peerwatch_responder.retry.text.words import words_of


def test_lines_around_a_word_of_failure_are_taken():
    lines = [f"step {number}" for number in range(20)]
    lines[9] = "RuntimeError: it broke"
    assert select(lines) == lines[4:15]
    assert select(lines, around=0) == ["RuntimeError: it broke"]
    assert select(["step 1", "loss 2.0"]) == []


def test_a_log_full_of_failures_keeps_its_first_and_last_lines():
    lines = [f"error {number}" for number in range(1000)]
    assert select(lines) == lines[:32] + lines[-32:]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/a/b.yaml'",
            [
                "file",
                "not",
                "found",
                "error",
                "errno",
                "no",
                "such",
                "file",
                "directory",
                "path",
                "errno2",
            ],
        ),
        ("CUDA_ERROR_ECC_UNCORRECTABLE at 0x7f12", ["cuda", "error", "ecc", "uncorrectable"]),
        (
            "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.",
            ["nvrm", "xid", "pci", "gpu", "fallen", "off", "bus", "xid79"],
        ),
        (
            "503 Server Error: for url: https://a.example/b",
            ["server", "error", "url", "url", "http503"],
        ),
        ("12 34 5.6", []),
    ],
)
def test_words(line, words):
    assert words_of(line) == words
