"""From the exporters' series to verdicts: who is named, when, and what keeps it open."""

import math
from dataclasses import replace

import pytest

from detector.diagnosis.exported import Answers, answers, series
from detector.diagnosis.layouts import EIGHT, snapshot, without_starts
from peerwatch_detector.diagnosis.collectives.hang.diagnoser import HangDiagnoser
from peerwatch_detector.diagnosis.collectives.series import by_group
from peerwatch_detector.diagnosis.collectives.snapshot import Snapshot
from peerwatch_detector.diagnosis.verdict import Verdict

# Rank 3 of four, on node c1, does not come to all_reduce 41.
HANG = snapshot("A: 0 41/40, 1 41/40, 2 41/40, 3 40/40", {"A": range(4)})


def at(state: Snapshot, seconds: float) -> Snapshot:
    return replace(state, time=state.time + seconds)


def diagnosed(state: Snapshot, seconds: float = 15, **changes) -> list[Verdict]:
    """Return the verdicts after two readings of the same."""
    diagnoser = HangDiagnoser("llm")
    diagnoser.diagnose(answers(state, **changes), state.time)
    later = at(state, seconds)
    return list(diagnoser.diagnose(answers(later, **changes), later.time))


def test_the_rank_that_did_not_launch_is_a_finding_with_its_node():
    (verdict,) = diagnosed(HANG)

    assert (verdict.class_name, verdict.node, verdict.rank) == ("not_launched", "c1", 3)
    assert (verdict.confidence, verdict.domain, verdict.action) == ("likely", "unknown", "isolate")
    assert verdict.names_node
    assert verdict.victims == (0, 1, 2)
    assert verdict.start_time == HANG.time + 15 - 40
    assert verdict.summary == (
        "rank 3 on node c1 did not launch all_reduce 41 of the group of all ranks; 3 ranks wait"
    )


# Ranks 2 and 3 have a group of their own, whose last end gloo has not noted.
LATE = without_starts(
    snapshot(
        "ALL: 0 41/40, 1 41/40, 2 40/40, 3 41/40, 4 41/40; P: 2 7/6, 3 7/6",
        {"ALL": range(5), "P": (2, 3)},
    )
)


def test_an_end_that_gloo_notes_late_in_another_group_hides_nobody():
    (verdict,) = diagnosed(LATE, ages={("P", 2): 40.2, ("P", 3): 40.2})

    assert (verdict.class_name, verdict.rank, verdict.confidence) == ("not_launched", 2, "likely")
    assert verdict.victims == (0, 1, 3, 4)


def test_what_is_launched_last_may_wait_for_the_network():
    """Rank 3 went on to the group of two, where both have launched: it says nothing of the end."""
    found = diagnosed(LATE, ages={("ALL", 3): 40.2})

    assert [verdict for verdict in found if verdict.names_node] == []


def test_an_end_that_gloo_notes_late_at_all_ranks_hides_nobody():
    """Seen live: a rank held a lock, and none had noted the end of the collective before."""
    late = without_starts(
        snapshot("ALL: 0 41/39, 1 41/39, 2 40/39, 3 41/39, 4 41/39", {"ALL": range(5)})
    )
    (verdict,) = diagnosed(late)

    assert (verdict.class_name, verdict.rank, verdict.confidence) == ("not_launched", 2, "likely")
    assert verdict.victims == (0, 1, 3, 4)


def test_it_is_named_within_a_minute_of_the_stop():
    diagnoser = HangDiagnoser("llm")
    named = []
    # Asked every 5 s, scraped every 15 s; what is not in flight for 5 s is not asked for.
    for seconds in range(0, 61, 5):
        scraped = seconds // 15 * 15
        state = at(HANG, seconds)
        read = dict.fromkeys(range(4), HANG.time + scraped)
        found = answers(state, age=scraped, read_at=read) if scraped > 5 else {}
        named += [seconds for _ in diagnoser.diagnose(found, state.time)]

    assert named[0] <= 45


def test_nothing_is_said_before_it_lasts():
    assert diagnosed(HANG, age=10) == []
    assert diagnosed(HANG, seconds=9) == []


def test_after_minutes_it_is_sure():
    (verdict,) = diagnosed(HANG, age=200)

    assert verdict.confidence == "sure"


def test_a_healthy_job_has_no_series_to_read():
    assert HangDiagnoser("llm").diagnose({}, 0) == []


def test_a_rank_that_saves_a_checkpoint_is_not_a_finding():
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, 15, 30):
        state = at(HANG, seconds)
        found = answers(state, age=40 + seconds, written={3: 50e6 * seconds})
        verdicts = diagnoser.diagnose(found, state.time)

    (verdict,) = verdicts
    assert (verdict.confidence, verdict.names_node) == ("undecided", False)
    assert "50 MB/s to or from storage" in verdict.summary


def test_a_checkpoint_of_minutes_that_is_written_in_bursts_is_not_a_finding():
    """A gigabyte is written every 25 s; in between the next one is serialised."""
    diagnoser = HangDiagnoser("llm")
    for seconds in range(0, 300, 5):
        state = at(HANG, seconds)
        found = answers(state, age=10 + seconds, written={3: 1e9 * ((seconds + 20) // 25)})
        verdicts = diagnoser.diagnose(found, state.time)

        assert not [verdict for verdict in verdicts if verdict.names_node]
    # It ends, and the rank does not come all the same.
    for seconds in range(300, 340, 5):
        state = at(HANG, seconds)
        found = answers(state, age=10 + seconds, written={3: 12e9})
        verdicts = diagnoser.diagnose(found, state.time)

    assert [verdict.names_node for verdict in verdicts] == [True]


def test_what_a_rank_did_before_the_job_stood_does_not_excuse_it():
    diagnoser = HangDiagnoser("llm")
    diagnoser.diagnose(answers(HANG, spans={3: 0}), HANG.time)
    diagnoser.diagnose({}, HANG.time + 60)
    for seconds in (120, 135, 150):
        state = at(HANG, seconds)
        verdicts = diagnoser.diagnose(answers(state, spans={3: 100}), state.time)

    assert [verdict.names_node for verdict in verdicts] == [True]


def test_a_rank_whose_own_work_goes_on_is_not_a_finding():
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, 15, 30):
        state = at(HANG, seconds)
        verdicts = diagnoser.diagnose(answers(state, spans={3: seconds}), state.time)

    assert [verdict.confidence for verdict in verdicts] == ["undecided"]


def test_a_rank_that_evaluates_alone_shows_it_by_its_batches():
    """An evaluation without spans and without steps, of minutes."""
    diagnoser = HangDiagnoser("llm")
    for seconds in range(0, 301, 15):
        found = answers(at(HANG, seconds), age=10 + seconds, batches={3: 100 + 3 * seconds})
        verdicts = diagnoser.diagnose(found, HANG.time + seconds)

    assert [(each.confidence, each.names_node) for each in verdicts] == [("undecided", False)]
    assert "its own work goes on, as in an evaluation" in verdicts[0].summary


def test_the_batch_of_the_step_in_which_a_rank_hangs_does_not_excuse_it():
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, 15, 30, 45):
        found = answers(at(HANG, seconds), age=10 + seconds, batches={3: 100 + (seconds > 0)})
        verdicts = diagnoser.diagnose(found, HANG.time + seconds)

    assert [verdict.names_node for verdict in verdicts] == [True]


def _wait(diagnoser: HangDiagnoser, start: float, seconds: int) -> list[Verdict]:
    """Let the job wait for rank 3 for so long, and return the last verdicts."""
    found: list[Verdict] = []
    for passed in range(10, seconds + 1, 10):
        state = at(HANG, start + passed)
        found = list(diagnoser.diagnose(answers(state, age=passed), state.time))
    return found


def test_a_pause_that_comes_again_is_usual():
    diagnoser = HangDiagnoser("llm")
    first = _wait(diagnoser, 0, 60)
    diagnoser.diagnose({}, 1100)

    again = _wait(diagnoser, 1000, 60)
    diagnoser.diagnose({}, 2100)
    longer = _wait(diagnoser, 2000, 130)

    assert [verdict.confidence for verdict in first] == ["likely"]
    assert [verdict.confidence for verdict in again] == ["undecided"]
    assert "recovered from 60 s before" in again[0].summary
    assert [verdict.confidence for verdict in longer] == ["likely"]


def test_a_job_that_was_started_again_has_no_usual_pauses():
    diagnoser = HangDiagnoser("llm")
    _wait(diagnoser, 0, 60)
    young = snapshot("A: 0 30/29, 1 30/29, 2 30/29, 3 29/29", {"A": range(4)})

    for seconds in (500, 515):
        verdicts = diagnoser.diagnose(answers(at(young, seconds)), young.time + seconds)

    assert [verdict.confidence for verdict in verdicts] == ["likely"]


def test_a_job_that_starts_is_given_time():
    young = snapshot("A: 0 2/1, 1 2/1, 2 2/1, 3 1/1", {"A": range(4)})

    assert [verdict.confidence for verdict in diagnosed(young)] == ["undecided"]
    assert [verdict.confidence for verdict in diagnosed(young, age=700)] == ["likely"]


@pytest.mark.parametrize("state", ["exited", "zombie", "stopped"])
def test_a_process_that_ended_or_stopped_is_told_elsewhere_and_its_victims_stay_unnamed(state):
    silent = snapshot(
        "TP01: 0 41/40; DP02: 2 41/40, 0 40/40", {"TP01": (0, 1), "DP02": (0, 2)}, silent=[1]
    )

    assert diagnosed(silent, states={state: 1}) == []


def test_no_data_is_undecided_and_no_finding():
    silent = snapshot("A: 0 41/40, 1 41/40, 2 41/40", {"A": range(4)}, silent=[3])

    (verdict,) = diagnosed(silent)

    assert (verdict.class_name, verdict.rank, verdict.confidence) == ("no_data", 3, "undecided")
    assert not verdict.names_node


def test_a_group_in_which_most_are_missing_names_no_node():
    ahead = snapshot("A: 0 41/40, 1 40/40, 2 40/40, 3 40/40", {"A": range(4)})

    assert {verdict.names_node for verdict in diagnosed(ahead)} == {False}


def test_ranks_of_many_nodes_at_once_are_no_node_s_fault():
    text = ";".join(f"G{n}: {2 * n} 41/40, {2 * n + 1} 40/40" for n in range(5))
    state = snapshot(text, {f"G{n}": (2 * n, 2 * n + 1) for n in range(5)})

    verdicts = diagnosed(state)

    assert [verdict.rank for verdict in verdicts] == [1, 3, 5, 7, 9]
    assert {verdict.names_node for verdict in verdicts} == {False}


def test_a_rank_that_waits_in_recv_is_a_victim():
    found: Answers = {}
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, 15):
        state = at(HANG, seconds)
        found = answers(state)
        found["age"].append(series({"rank": 3, "group": "pp", "node": "c1"}, 40))
        verdicts = diagnoser.diagnose(found, state.time)

    assert verdicts == []


def test_clocks_an_hour_apart_do_not_matter():
    # The age is the difference of two times of one clock, the time of reading the server's.
    (verdict,) = diagnosed(HANG, age=3600 + 40)

    assert verdict.rank == 3


def test_exporters_read_at_different_moments():
    (verdict,) = diagnosed(HANG, seconds=30, read_at=None)

    assert verdict.rank == 3
    stale = dict.fromkeys(range(4), HANG.time)
    assert diagnosed(HANG, seconds=30, read_at=stale) == []


def test_a_rank_that_was_last_read_long_ago_is_silent():
    read = {0: HANG.time + 100, 1: HANG.time + 100, 2: HANG.time + 100, 3: HANG.time}
    diagnoser = HangDiagnoser("llm")
    for seconds in (85, 100):
        state = at(HANG, seconds)
        moment = {rank: min(time, state.time) for rank, time in read.items()}
        verdicts = diagnoser.diagnose(answers(state, read_at=moment), state.time)

    assert [(verdict.class_name, verdict.rank) for verdict in verdicts] == [("no_data", 3)]


def test_ranks_that_report_other_groups_than_the_rest_cost_only_themselves():
    state = snapshot(
        "A: 0 41/40, 1 41/40, 2 41/40, 3 40/40; odd: 9 5/1", {"A": range(4), "odd": (9,)}
    )
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, 15):
        now = at(state, seconds)
        found = answers(now)
        found["groups"].append(series({"group": "A", "members": "0-7", "node": "c9"}, 1))
        found["groups"].append(series({"group": "A", "members": "0-3", "node": "c1"}, 1))
        found["groups"].append(series({"group": "A", "members": "-4;x", "node": "c2"}, 1))
        found["sequence"].append(series({"group": "A", "rank": "none", "state": "launched"}, 1))
        found["sequence"].append(series({"group": "A", "rank": 77, "state": "launched"}, 1))
        verdicts = diagnoser.diagnose(found, now.time)

    assert ("not_launched", 3) in [(verdict.class_name, verdict.rank) for verdict in verdicts]
    assert {verdict.rank for verdict in verdicts if verdict.names_node} == {3}


def test_without_members_whoever_reports_a_group_is_one():
    (verdict,) = diagnosed(HANG, members=False)

    assert verdict.rank == 3


def test_equal_names_of_disjoint_groups_are_two_groups():
    state = snapshot("A: 0 41/40, 1 40/40", {"A": (0, 1)})
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, 15):
        now = at(state, seconds)
        found = answers(now)
        for rank, launched in ((2, 90), (3, 90)):
            labels = {"group": "A", "rank": rank, "node": "c1"}
            found["sequence"].append(series({**labels, "state": "launched"}, launched))
            found["sequence"].append(series({**labels, "state": "completed"}, launched))
            found["up"].append(series(labels, 1))
            found["read"].append(series(labels, now.time))
        found["groups"].append(series({"group": "A", "members": "2-3", "node": "c1"}, 1))
        verdicts = diagnoser.diagnose(found, now.time)

    assert [verdict.rank for verdict in verdicts] == [1]


def test_the_order_of_calls_names_no_node():
    state = snapshot("A: 0 30/29, 1 29/29; B: 0 39/39, 1 40/39", {"A": range(2), "B": range(2)})

    (verdict,) = diagnosed(state)

    assert (verdict.class_name, verdict.node, verdict.domain) == ("call_order", "", "user")


def test_a_stage_of_eight_ranks_names_one():
    text = (
        "TP45: 4 40/39, 5 39/39; PP04: 0 12/11, 4 11/11; PP15: 1 12/11, 5 11/11;"
        "DP02: 2 7/6, 0 6/6; DP13: 3 7/6, 1 6/6; DP46: 6 7/6, 4 6/6; DP57: 7 7/6, 5 6/6"
    )

    verdicts = diagnosed(snapshot(text, EIGHT))

    assert [(verdict.rank, verdict.node) for verdict in verdicts] == [(5, "c2")]


def test_a_count_that_is_no_number_costs_only_its_rank():
    diagnoser = HangDiagnoser("llm")
    for state in (HANG, at(HANG, 15)):
        found = answers(state)
        for each in found["sequence"]:
            if each.labels["rank"] == "0":
                each.values[0] = math.nan
        verdicts = diagnoser.diagnose(found, state.time)

    assert [3] == [each.rank for each in verdicts if each.class_name == "not_launched"]


@pytest.mark.parametrize("first", [True, False])
def test_a_rank_that_was_started_again_elsewhere_is_not_where_it_was(first):
    """What its former node pushed is still answered, with the counts of before."""
    diagnoser = HangDiagnoser("llm")
    for state in (HANG, at(HANG, 15)):
        old = {"job_id": "llm", "node": "z9", "rank": 3}
        before = {
            "up": series({**old, "source": "recorder"}, 1),
            "read": series({**old, "source": "recorder"}, HANG.time - 30),
            "sequence": series({**old, "group": "A", "state": "launched"}, 900),
            "ended": series({**old, "error": "RuntimeError"}, 1),
        }
        found = answers(state)
        for name, each in before.items():
            found.setdefault(name, []).insert(0 if first else len(found[name]), each)
        verdicts = diagnoser.diagnose(found, state.time)

    assert [("not_launched", "c1", 3)] == [(v.class_name, v.node, v.rank) for v in verdicts]


def test_a_group_is_not_taken_for_another_whose_name_begins_alike():
    both = snapshot(
        "10 (0-1): 0 4/3, 1 4/3; 1 (0-1): 0 9/8, 1 9/8", {"10 (0-1)": (0, 1), "1 (0-1)": (0, 1)}
    )
    samples = {"age": [series({"group": "1", "rank": 0}, 50.0)]}
    assert {("1 (0-1)", 0): 50.0} == by_group(samples, "age", both.groups)


def test_a_rank_that_stands_stands_though_the_clock_was_set_back():
    diagnoser = HangDiagnoser("llm")
    for seconds in (0, -600, -585):
        state = at(HANG, seconds)
        verdicts = diagnoser.diagnose(answers(state), state.time)

    assert [("not_launched", 3)] == [(each.class_name, each.rank) for each in verdicts]


def test_what_a_rank_did_before_the_clock_was_set_back_does_not_excuse_it():
    diagnoser = HangDiagnoser("llm")
    reads = ((0, 0.0), (10, 2e9), (-600, 2e9), (-585, 2e9))
    for seconds, written in reads:
        state = at(HANG, seconds)
        verdicts = diagnoser.diagnose(answers(state, written={3: written}), state.time)

    assert ["likely"] == [each.confidence for each in verdicts]
