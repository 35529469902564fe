"""Totals and states from successive answers of the recorder: recorded ones, and made ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_recorder import dump, entry
from peerwatch_exporter.sources.collectives import blocks as blocks_module
from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.flight_recorder import parse_dump
from peerwatch_exporter.sources.collectives.tally import Tally

RECORDED = Path(__file__).parent / "recorded_collectives"


def follow(*documents, most_groups=32, size=4, tally=None, now=1000.0):
    """Return the groups by name after the answers of one recorder."""
    tally = tally or Tally(most_groups)
    for document in documents:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        tally.update(parse_dump(body), now, lambda _: size)
    return {group.group: group for group in tally.groups()}


def numbers(group):
    return group.launched, group.started, group.completed


def recorded(kind, rank):
    return (RECORDED / f"fr_gloo_{kind}_rank{rank}.json").read_bytes()


def test_recorded_hang_shows_who_did_not_launch():
    groups = [follow(recorded("hang", rank)) for rank in range(4)]
    assert [(67, None, 66), (67, None, 66), (66, None, 66), (66, None, 66)] == [
        numbers(group["0"]) for group in groups
    ]
    # Rank 2 stands still: rank 3 waits for it in their pair, the others for both.
    assert (60, None, 60) == numbers(groups[2]["2"])
    assert (61, None, 60) == numbers(groups[3]["2"])
    waiting = groups[3]["2"].in_flight
    assert (61, "all_reduce", "[250000]", "[250000]", "Float") == (
        waiting.sequence,
        waiting.collective,
        waiting.input,
        waiting.output,
        waiting.dtype,
    )
    assert groups[2]["2"].in_flight is None


def test_number_that_gloo_has_set_back_is_read_from_the_entries():
    """Torch's two threads write a group's completed number in either order: it may fall back."""
    document = json.loads(recorded("hang", 2))
    for behind in range(4):
        document["pg_status"]["0"]["last_completed_collective"] = str(66 - behind)
        group = follow(document)["0"]
        assert (66, None, 66) == numbers(group)
        assert group.in_flight is None
    # What has not completed stays in flight, and what comes after it completes nothing.
    document["pg_status"]["0"]["last_completed_collective"] = "63"
    only = {each["collective_seq_id"]: each for each in document["entries"] if not each["pg_id"]}
    only[65]["retired"] = False
    assert (66, None, 64) == numbers(follow(document)["0"])
    del only[65]["retired"]  # an older torch does not say
    assert (66, None, 64) == numbers(follow(document)["0"])


def test_recorded_nccl_knows_starts_and_durations():
    """Torch 2.11 and NCCL 2.28.9 on an H100 with TORCH_NCCL_ENABLE_TIMING=1, in a step."""
    body = (RECORDED / "fr_nccl_rank0.json").read_bytes()
    groups = follow(body)
    assert {"0": (136, 133, 132), "1": (131, 130, 130)} == {
        name: numbers(group) for name, group in groups.items()
    }
    timed = [each for each in parse_dump(body).entries if "duration_ms" in each]
    assert 19 == len(timed)


def test_recorded_totals():
    totals = follow(recorded("hang", 0))["0"].totals
    assert {"all_reduce", "barrier"} == set(totals)
    assert 67 == sum(each.launched for each in totals.values())
    assert 66 == sum(each.completed for each in totals.values())
    reduce = totals["all_reduce"]
    assert reduce.completed * 1_000_000 == reduce.size
    assert reduce.size * 1.5 == reduce.bus
    assert reduce.seconds is None  # gloo has no durations


def test_recorded_slow_rank_arrives_late_in_its_pair(monkeypatch):
    monkeypatch.setattr(blocks_module, "BLOCK_SECONDS", 0.5)
    groups = [follow(recorded("slow", rank)) for rank in range(4)]
    assert 1 == len({(g["0"].block.end, g["0"].block.collectives) for g in groups})
    slow, other = (groups[rank]["2"].block for rank in (2, 3))
    assert (slow.end, slow.collectives) == (other.end, other.collectives)
    assert 0.08 == pytest.approx(slow.arrival - other.arrival, abs=0.01)


def test_each_collective_counts_once_however_often_it_is_read():
    answer = dump([entry(n, n + 1) for n in range(5)], g0=(5, -1, 4))
    group = follow(answer, answer, answer)["0"]
    assert (5, 4) == (group.totals["all_reduce"].launched, group.totals["all_reduce"].completed)
    assert 5 == group.in_flight.sequence


def test_what_was_overwritten_between_two_answers_counts_by_its_number():
    first = dump([entry(n, n + 1) for n in range(4)], g0=(4, -1, 4))
    # 6 of 10 were overwritten.
    second = dump([entry(n, n + 1) for n in range(10, 14)], g0=(14, -1, 13))
    totals = follow(first, second)["0"].totals["all_reduce"]
    assert 14 == totals.launched
    assert totals.completed in (12, 13)  # its share of those missed completes with the last
    assert totals.completed * 4000 == totals.size
    third = dump([entry(n, n + 1) for n in range(11, 15)], g0=(15, -1, 15))
    totals = follow(first, second, third)["0"].totals["all_reduce"]
    assert (15, 15, 15 * 4000) == (totals.launched, totals.completed, totals.size)


def test_exporter_that_starts_late_begins_with_what_is_in_flight():
    running = dump([entry(n, n + 1) for n in range(100, 110)], g0=(110, -1, 109))
    group = follow(running)["0"]
    assert (110, None, 109) == numbers(group)
    assert (1, 0) == (group.totals["all_reduce"].launched, group.totals["all_reduce"].completed)


def test_rank_that_was_restarted_goes_on_counting():
    before = dump([entry(n, n + 1) for n in range(8)], g0=(8, -1, 8))
    after = dump([entry(n, n + 1) for n in range(3)], g0=(3, -1, 2))
    group = follow(before, after)["0"]
    assert (3, None, 2) == numbers(group)
    assert 11 == group.totals["all_reduce"].launched


@pytest.mark.parametrize("group_id", [0, 7])
def test_group_that_was_made_anew_begins_again(group_id):
    before = [entry(n, n + 1) for n in range(5)]
    again = [entry(5 + n, n + 1, group_id=group_id) for n in range(2)]
    old = {"g0": (5, -1, 5)} if group_id else {}
    progress = {**old, f"g{group_id}": (2, -1, 1)}
    group = follow(dump(before, g0=(5, -1, 5)), dump(before + again, **progress))["0"]
    assert (2, None, 1) == numbers(group)
    assert (7, 6) == (group.totals["all_reduce"].launched, group.totals["all_reduce"].completed)
    assert 2 == group.in_flight.sequence


def test_nccl_says_of_each_entry_what_became_of_it():
    entries = [
        entry(0, 1, name="nccl:_all_gather_base", state="completed", duration_ms=2.0),
        entry(1, 2, name="nccl:all_reduce", state="started"),
        entry(2, 2, name="nccl:send 0->1", is_p2p=True, p2p_seq_id=1, state="scheduled"),
    ]
    group = follow(dump(entries, g0=(2, 2, 1)), size=8)["0"]
    assert (2, 2, 1) == numbers(group)
    gathered = group.totals["all_gather"]
    assert (1, 0.002, 4000, 3500) == (
        gathered.completed,
        gathered.seconds,
        gathered.size,
        gathered.bus,
    )
    assert (1, 0) == (group.totals["send"].launched, group.totals["send"].completed)
    assert "all_reduce" == group.in_flight.collective
    done = [{**each, "state": "completed"} for each in entries]
    group = follow(dump(entries, g0=(2, 2, 1)), dump(done, g0=(2, 2, 2)), size=8)["0"]
    assert [1, 1, 1] == [each.completed for each in group.totals.values()]
    assert group.in_flight is None


def test_recorder_without_progress_is_taken_by_its_entries():
    entries = [
        entry(0, 1, name="nccl:all_reduce", state="completed"),
        entry(1, 2, name="nccl:all_reduce"),
    ]
    group = follow({"entries": entries})["0"]
    assert (2, None, 1) == numbers(group)
    assert 2 == group.in_flight.sequence


def test_age_is_known_where_the_entry_is_lost():
    # A late exporter, a ring that other groups filled: nobody knows what hangs, but something does.
    other = [entry(n, n + 1, group="1", group_id=1) for n in range(50, 60)]
    first = dump([entry(40, 8), *other], g0=(8, -1, 8), g1=(60, -1, 60))
    second = dump(other, g0=(9, -1, 8), g1=(60, -1, 60))
    tally = Tally(32)
    follow(first, tally=tally)
    follow(second, tally=tally, now=1010.0)
    flight = follow(second, tally=tally, now=1020.0)["0"].in_flight
    assert (1010.0, None) == (flight.launched, flight.sequence)


def test_groups_beyond_the_limit_are_left_out_and_said_so():
    tally = Tally(2)
    entries = [entry(n, 1, group=str(n), group_id=n) for n in range(4)]
    with pytest.raises(CollectiveSourceError, match="max_groups") as caught:
        follow(dump(entries), tally=tally)
    assert "too_many_groups" == caught.value.error_class
    assert ["2", "3"] == [group.group for group in tally.groups()]


@pytest.mark.parametrize(
    "broken",
    [
        {"record_id": "x"},
        {"collective_seq_id": -4},
        {"collective_seq_id": 1e300},
        {"process_group": []},
        {"process_group": [["0"], 1]},
        {"time_created_ns": None},
        {"pg_id": None},
    ],
)
def test_broken_entry_costs_itself(broken):
    tally = Tally(32)
    with pytest.raises(CollectiveSourceError, match="1 of 2 entries"):
        follow(dump([entry(0, 1), {**entry(1, 2), **broken}]), tally=tally)
    assert [1] == [group.totals["all_reduce"].launched for group in tally.groups()]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"entries": [',
        b"[]",
        b"7",
        b'{"entries": 3}',
        b'{"entries": [3]}',
        b'{"pg_status": [1]}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_document_of_the_recorder_is_said_so(body):
    with pytest.raises(CollectiveSourceError) as caught:
        parse_dump(body)
    assert "recorder_garbled" == caught.value.error_class


def test_sizes_and_types_that_make_no_sense_are_no_bytes():
    odd = [
        entry(0, 1, input_sizes=[["a", -3], 5], input_dtypes=["Complicated"], output_sizes=None),
        entry(1, 2, input_sizes=[[float("nan")]], input_dtypes=["Complicated"]),
        entry(2, 3, input_sizes=[[7] * 10_000], input_dtypes="Float", output_dtypes=[3]),
    ]
    totals = follow(dump(odd, g0=(3, -1, 3)))["0"].totals["all_reduce"]
    # Only the second one's output makes sense.
    assert (3, 4000) == (totals.completed, totals.size)


def gloo_with_transfers(records, transfers_every):
    """Return entries, and the numbers without the sends that gloo counts in between."""
    entries, number = [], 0
    for record in range(records):
        number += 2 if record % transfers_every == 1 else 1
        entries.append(entry(record, number))
    return entries, number


@pytest.mark.parametrize(
    "windows", [[(0, 40)], [(0, 10), (5, 20), (20, 40)], [(0, 10), (25, 40)], [(17, 40)]]
)
def test_sends_over_gloo_do_not_shift_the_numbers(windows):
    # Rank 0 of a pipeline sends now and then, which gloo numbers but does not record.
    entries, number = gloo_with_transfers(40, 4)
    answers = [
        dump(entries[first:last], g0=(entries[last - 1]["collective_seq_id"],) * 1 + (-1, 0))
        for first, last in windows[:-1]
    ]
    first, last = windows[-1]
    answers.append(dump(entries[first:last], g0=(number, -1, number - 1)))
    group = follow(*answers)["0"]
    assert (40, None, 39) == numbers(group)
    assert 40 == group.in_flight.sequence


def test_transfers_that_may_be_of_either_group_leave_both_without_numbers():
    def ring(first, numbers_of):
        return [
            entry(first + 2 * n + g, number + n, group=str(g), group_id=g)
            for n in range(3)
            for g, number in enumerate(numbers_of)
        ]

    # 4 records were overwritten, and 5 numbers of each group are missing.
    first, second = ring(0, (1, 1)), ring(10, (9, 9))
    progress = {"g0": (11, -1, 11), "g1": (11, -1, 11)}
    groups = follow(dump(first, g0=(3, -1, 3), g1=(3, -1, 3)), dump(second, **progress))
    assert [(None, None, None)] * 2 == [numbers(groups[name]) for name in "01"]
    assert 3 <= groups["0"].totals["all_reduce"].launched


def test_send_over_gloo_that_hangs_is_seen_by_its_age():
    tally = Tally(32)
    entries, number = gloo_with_transfers(8, 4)
    for now in (1000.0, 1010.0):
        hanging = dump(entries, g0=(number + 1, -1, number))
        group = follow(hanging, tally=tally, now=now)["0"]
    assert (8, None, 8) == numbers(group)
    assert (1000.0, None) == (group.in_flight.launched, group.in_flight.sequence)
