"""How far a job came, by what trainers write."""

import pytest

from peerwatch_responder.retry.evidence.steps import joined, steps_in

FORMS = [
    " iteration {n:8d}/  500000 | consumed samples: {k} | elapsed time per iteration (ms): 4567.8",
    "[2026-03-01 10:30:00,001] [INFO] [Rank 0] step={n}, skipped=0, lr=[9.65e-06]",
    "{{'loss': 1.2, 'step': {n}, 'epoch': 0.12}}",
    " 6%|#6        | {n}/500 [00:52<13:12,  1.69s/it, loss=1.23]",
    "Epoch 1 Global step {n}: loss 3",
    "Iter {n} loss 3.2",
]


@pytest.mark.parametrize("form", FORMS)
def test_steps_of_trainers(form):
    text = "".join(f"{form.format(n=n, k=n * 8)}\n" for n in (10, 20, 30)).encode()
    steps = steps_in(text)
    assert (steps.first, steps.last) == (10, 30)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step 1 of the set-up\n",
        "step 3 failed: error\n" * 5,
        "loss 1 2 3\n",
        "step 9 ms\n" * 9,
    ],
)
def test_what_is_no_progress(text):
    assert steps_in(text.encode()).last is None


def test_the_count_that_rises_most_often_is_believed():
    text = "".join(f"step {n % 4} of iteration {n}\n" for n in range(1, 30)).encode()
    assert steps_in(text).last == 29


def test_a_count_that_begins_anew_is_not_progress():
    text = b"step 5\nstep 6\nstep 7\nstep 1\nstep 2\n"
    steps = steps_in(text)
    assert steps.last == 7
    assert not steps.survived(text.index(b"step 7"))


def test_parts_are_joined():
    first, second = (
        steps_in(b"step 1\nstep 2\nstep 3\n"),
        steps_in(b"step 8\nstep 9\nstep 10\n", 100),
    )
    whole = joined([first, second])
    assert (whole.first, whole.last) == (1, 10)
    assert whole.survived(50)
