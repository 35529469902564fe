"""From arrivals at blocks of collectives, or time spent waiting, to the node that is late."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from detector.diagnosis.exported import Answers, series
from peerwatch_detector.diagnosis.collectives.slowness.straggler_diagnoser import StragglerDiagnoser
from peerwatch_detector.diagnosis.verdict import Verdict

# A collective every 0.5 s, in blocks of 32.
RATE, LENGTH = 2.0, 32
SECONDS = LENGTH / RATE
Groups = Mapping[str, Mapping[int, float]]


def block(
    groups: Groups,
    number: int,
    *,
    more: Answers | None = None,
    offsets: Mapping[int, float] | None = None,
    known: bool = True,
    per_node: int = 1,
) -> Answers:
    """Return the answers while block ``number`` is the newest; lateness by group and rank."""
    found: Answers = {"block": [], "size": [], "arrival": [], "rate": [], "clock": []}
    for group, ranks in groups.items():
        found["rate"].append(series({"group": group}, RATE))
        for rank, late in ranks.items():
            labels = {"group": group, "rank": rank, "node": f"c{rank // per_node}"}
            off = (offsets or {}).get(rank, 0.0)
            found["block"].append(series(labels, number * LENGTH))
            found["size"].append(series(labels, LENGTH))
            found["arrival"].append(series(labels, 1e9 + number * SECONDS + late + off))
    for rank in {rank for ranks in groups.values() for rank in ranks} if known else ():
        labels = {"rank": rank, "node": f"c{rank // per_node}"}
        found["clock"].append(series(labels, (offsets or {}).get(rank, 0.0)))
    return found | (more or {})


def diagnosed(groups: Groups, blocks: int = 3, **changes) -> list[Verdict]:
    """Return the verdicts after some blocks in which the lateness was so."""
    diagnoser = StragglerDiagnoser("llm")
    verdicts: list[Verdict] = []
    for passed in range(0, int(blocks * SECONDS), 5):
        number = 5 + int(passed // SECONDS)
        verdicts = list(diagnoser.diagnose(block(groups, number, **changes), 1e9 + passed))
    return verdicts


LATE = {"0": {0: 0.0, 1: 0.001, 2: 0.3, 3: 0.002}}


def test_the_last_to_arrive_block_after_block_is_named_with_its_node():
    (verdict,) = diagnosed(LATE)

    assert (verdict.class_name, verdict.node, verdict.rank) == ("compute_straggler", "c2", 2)
    assert (verdict.domain, verdict.confidence, verdict.names_node) == ("unknown", "likely", True)
    assert verdict.victims == (0, 1, 3)
    assert verdict.summary == (
        "rank 2 on node c2: group 0 (ranks 0-3) waits for it for 60% of its time"
    )


def test_one_late_block_is_a_pause():
    assert diagnosed(LATE, blocks=1) == []


def test_a_verdict_ends_when_nobody_is_late_any_more():
    diagnoser = StragglerDiagnoser("llm")
    for number in range(5, 8):
        diagnoser.diagnose(block(LATE, number), 1e9 + number * SECONDS)

    # What is not apart is not read.
    assert diagnoser.diagnose({}, 1e9 + 8 * SECONDS)
    assert diagnoser.diagnose({}, 1e9 + 10 * SECONDS) == []


def test_less_than_a_sixth_of_the_time_is_no_straggler():
    assert diagnosed({"0": {0: 0.0, 1: 0.0, 2: 0.07, 3: 0.0}}) == []


def test_offsets_of_clocks_are_taken_out():
    offsets = {0: 0.0, 1: 0.25, 2: -0.3, 3: 0.1}

    (verdict,) = diagnosed(LATE, offsets=offsets)
    even = diagnosed({"0": dict.fromkeys(range(4), 0.0)}, offsets=offsets)

    assert verdict.rank == 2
    assert even == []


def test_a_clock_that_nobody_knows_the_offset_of_names_nobody():
    assert diagnosed({"0": dict.fromkeys(range(4), 0.0)}, offsets={2: 0.3}, known=False) == []


def test_clocks_an_hour_apart_name_nobody():
    assert diagnosed({"0": {0: 0.0, 1: 0.0, 2: 3600.0, 3: 0.0}}) == []


def test_ranks_of_one_host_need_no_offset():
    (verdict,) = diagnosed({"0": {0: 0.0, 1: 0.3}}, known=False, per_node=2)

    assert (verdict.node, verdict.rank) == ("c0", 1)


def test_the_smallest_group_decides_between_nodes():
    groups = {
        "DP46": {4: 0.3, 6: 0.0, 8: 0.0},
        "DP57": {5: 0.3, 7: 0.0, 9: 0.0},
        "TP45": {4: 0.0, 5: 0.3},
    }

    (verdict,) = diagnosed(groups)

    assert (verdict.node, verdict.rank) == ("c5", 5)


def test_all_ranks_of_a_node_that_is_slow_name_the_node():
    groups = {"0": {0: 0.0, 1: 0.0, 2: 0.3, 3: 0.3, 4: 0.0, 5: 0.0, 6: 0.0, 7: 0.0}}

    (verdict,) = diagnosed(groups, per_node=2)

    assert (verdict.node, verdict.rank) == ("c1", None)


def test_a_stage_that_is_late_in_every_replica_names_nobody():
    groups = {f"PP{r}": {2 * r: 0.0, 2 * r + 1: 0.3} for r in range(4)}

    assert {verdict.names_node for verdict in diagnosed(groups)} == {False}


def pipelines(*members: str) -> Answers:
    labels = {"description": "PIPELINE_MODEL_PARALLEL_GROUP"}
    return {"stages": [series({**labels, "members": ranks}, 1) for ranks in members]}


def test_the_first_stage_of_a_single_pipeline_ends_a_step_last_and_names_nobody():
    late = {"0": {0: 0.3, 1: 0.2, 2: 0.1, 3: 0.0}}

    assert diagnosed(late, more=pipelines("0-3")) == []
    assert [verdict.node for verdict in diagnosed(late)] == ["c0"]


def test_s5_a_stage_that_is_late_in_every_replica_of_one_group_names_nobody():
    late = {"0": {0: 0.0, 1: 0.3, 2: 0.0, 3: 0.3, 4: 0.0, 5: 0.31}}

    assert diagnosed(late, more=pipelines("0-1", "2-3", "4-5")) == []


def test_s6_a_worker_that_is_later_than_its_stage_is_named():
    late = {"0": {0: 0.2, 1: 0.0, 2: 0.2, 3: 0.0, 4: 0.45, 5: 0.0}}

    (verdict,) = diagnosed(late, more=pipelines("0-1", "2-3", "4-5"))

    assert (verdict.node, verdict.rank) == ("c4", 4)


def test_few_steps_of_random_lengths_name_nobody():
    """A step takes 10 s: twenty of them are more than three blocks."""
    slow = {"steps": [series({}, 0.1)]}

    assert diagnosed(LATE, more=slow) == []
    assert len(diagnosed(LATE, blocks=16, more=slow)) == 1


def test_while_a_node_loses_what_it_sends_nobody_is_late_by_himself():
    assert diagnosed(LATE, more={"loss": [series({"node": "c1"}, 0.4)]}) == []


def test_ranks_in_different_blocks_are_not_compared():
    diagnoser = StragglerDiagnoser("llm")
    for passed in range(0, 60, 5):
        found = block(LATE, 5 + passed // 16)
        found["block"][0] = series({"group": "0", "rank": 0, "node": "c0"}, 4 * LENGTH)

        assert diagnoser.diagnose(found, 1e9 + passed) == []


@pytest.mark.parametrize("missing", ["block", "size", "rate"])
def test_what_is_missing_costs_only_itself(missing):
    diagnoser = StragglerDiagnoser("llm")

    assert diagnoser.diagnose({**block(LATE, 5), missing: []}, 1e9) == []


def test_a_rank_that_saves_for_all_is_not_slow():
    diagnoser = StragglerDiagnoser("llm")
    for number in range(5, 9):
        found = block(LATE, number)
        found["saving"] = [series({"rank": 2, "node": "c2"}, 0.55)]

        assert diagnoser.diagnose(found, 1e9 + number * SECONDS) == []


def test_whoever_waits_least_is_late_without_any_clock():
    diagnoser = StragglerDiagnoser("llm")
    waits = {0: 0.45, 1: 0.44, 2: 0.05, 3: 0.45}
    found = {
        "waits": [
            series({"group": "0", "rank": rank, "node": f"c{rank}"}, share)
            for rank, share in waits.items()
        ]
    }
    named = {passed: diagnoser.diagnose(found, 1e9 + passed) for passed in range(0, 70, 5)}

    assert named[55] == []
    (verdict,) = named[65]
    assert (verdict.node, verdict.rank) == ("c2", 2)


def test_a_late_rank_whose_series_have_gone_costs_only_its_own_verdict():
    """Its block is of a moment ago; its node was known by the series that it no longer has."""
    diagnoser = StragglerDiagnoser("llm")
    whole, without = {"0": {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.3}}, {"1": {0: 0.0, 1: 0.0}}
    diagnoser.diagnose(block(whole, 5, known=False, per_node=4), 1e9)

    assert [] == diagnoser.diagnose(block(without, 5, known=False, per_node=4), 1e9 + 5)
    assert [] == diagnoser.diagnose(block(without, 6, known=False, per_node=4), 1e9 + 20)
