"""Of a Python traceback the last line counts, and of a chain the first exception is the root."""

from __future__ import annotations

import pytest

from peerwatch_common.signatures.matcher import LogMatcher
from signature_tables import shipped_table

TABLE = shipped_table("job")
FRAMES = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 10, in <module>\n'
    '    raise RuntimeError("CUDA error: device-side assert triggered")\n'
    "    ^^^^^^^^^\n"
)


def found_in(log: str) -> list[tuple[str, bool, int | None]]:
    matcher = LogMatcher(TABLE)
    events = matcher.feed(log.encode()) + matcher.finish()
    return [(event.signature.id, event.cascade, event.rank) for event in events]


def test_the_last_line_is_the_event_and_code_in_frames_is_none() -> None:
    assert found_in(f"{FRAMES}KeyError: 'x'\n") == [("program_error", False, None)]
    assert found_in(f"{FRAMES}RuntimeError: own\n") == [("python_exception", False, None)]
    assert found_in(f"{FRAMES}OSError: [Errno 28] No space left on device\n") == [
        ("storage_full", False, None)
    ]


def test_an_exception_without_a_traceback_is_none() -> None:
    assert found_in("KeyError: 'x'\nretry after ValueError: bad\n") == []


def test_of_a_chain_the_first_exception_is_the_root() -> None:
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = f"{FRAMES}KeyError: 'x'\n{during}{FRAMES}ValueError: y\n{cause}{FRAMES}TypeError: z\n"
    assert found_in(log) == [
        ("program_error", False, None),
        ("program_error", True, None),
        ("program_error", True, None),
    ]
    assert found_in(f"{log}{FRAMES}TypeError: z\n")[-1] == ("program_error", False, None)


@pytest.mark.parametrize(
    ("first", "second", "rank"),
    [
        ("[rank1]: ", "[default2]:", None),
        # By pdsh, from two nodes.
        ("node-1: [rank1]: ", "node-2: [rank9]: ", 9),
    ],
)
def test_tracebacks_of_several_ranks_may_be_mixed(
    first: str, second: str, rank: int | None
) -> None:
    first_rank = [f"{first}{line}" for line in f"{FRAMES}KeyError: 'x'".split("\n")]
    second_rank = [f"{second}{line}" for line in f"{FRAMES}MemoryError".split("\n")]
    mixed = [line for pair in zip(first_rank, second_rank, strict=True) for line in pair]
    assert found_in("\n".join(mixed)) == [
        ("program_error", False, 1),
        ("python_memory_error", False, rank),
    ]


def test_lines_of_others_within_a_traceback_are_read() -> None:
    lines = f"[rank1]: {FRAMES.splitlines()[0]}\nCUDA error: device-side assert triggered\n"
    assert found_in(lines) == [("cuda_device_assert", False, None)]


def test_a_traceback_may_stand_behind_a_progress_bar_or_a_host() -> None:
    assert found_in(f"  5%| | 5/100 [00:01]{FRAMES}KeyError: 'x'\n")[0][0] == "program_error"
    hosts = "".join(f"node-1: {line}\n" for line in f"{FRAMES}KeyError: 'x'".split("\n"))
    assert found_in(hosts) == [("program_error", False, None)]


def test_an_indented_traceback_ends_at_its_own_margin() -> None:
    log = "  traceback : " + FRAMES.replace("\n", "\n    ") + "KeyError: 'x'\n"
    assert found_in(log) == [("program_error", False, None)]


def test_a_traceback_without_an_end_does_not_swallow_the_log() -> None:
    log = FRAMES + "    deep\n" * 2000 + "CUDA error: device-side assert triggered\n"
    assert found_in(log) == [("cuda_device_assert", False, None)]


def test_a_traceback_in_a_json_record_is_followed() -> None:
    import json

    record = {"level": "error", "message": "failed", "exc_info": f"{FRAMES}KeyError: 'x'"}
    assert found_in(json.dumps(record) + "\n") == [("program_error", False, None)]


BOX = (
    "╭───────────── Traceback (most recent call last) ─────────────╮\n"
    "│ /home/a/train.py:7 in inner                                 │\n"
    '│ ❱  7 │   raise RuntimeError("CUDA error: device-side asse… │\n'
    "│ ╭─── locals ───╮                                            │\n"
    "│ ╰──────────────╯                                            │\n"
    "╰─────────────────────────────────────────────────────────────╯\n"
)
ASCII_BOX = (
    "+------------- Traceback (most recent call last) -------------+\n"
    "| /home/a/train.py:7 in inner                                 |\n"
    '| >  7 |   raise RuntimeError("CUDA error: device-side assert")|\n'
    "+-------------------------------------------------------------+\n"
)


@pytest.mark.parametrize("box", [BOX, ASCII_BOX], ids=["unicode", "ascii"])
@pytest.mark.parametrize("margin", ["", "[rank2]: ", " " * 28])
def test_a_traceback_in_a_box_is_followed(box: str, margin: str) -> None:
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    log = f"{box}KeyError: 'x'\n{during}{box}ValueError: y   \nhealthy\n"
    rank = 2 if "rank" in margin else None
    assert [("program_error", False, rank), ("program_error", True, rank)] == found_in(
        "".join(f"{margin}{line}\n" for line in log.splitlines())
    )


def test_words_of_a_header_alone_open_nothing() -> None:
    log = "see Traceback (most recent call last) above\nKeyError: 'x'\n"
    assert [] == found_in(log)


def test_an_error_that_has_a_text_of_its_own_needs_no_traceback() -> None:
    assert [("cuda_device_assert", False, None), ("cuda_out_of_memory", False, None)] == found_in(
        "RuntimeError: CUDA error: device-side assert triggered\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has\n"
    )
