from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.attribution import attribution_of
from peerwatch_reliability.lemons.episodes import Episode, merged, repair_effectiveness
from peerwatch_reliability.lemons.lemons import find_lemons, flagged_of, worth_of
from peerwatch_reliability.lemons.score import scores_of
from peerwatch_reliability.lemons.signals import Signals, signals_of, threshold_curve
from peerwatch_reliability.records import Window
from peerwatch_reliability.settings.config import LemonConfig
from reliability_rows import T0, row

DAY = 86_400.0
CONFIG = LemonConfig()
FLEET = [f"h{number}" for number in range(400)]


@pytest.fixture(scope="module")
def faults():
    """Return a year of real faults of 400 nodes."""
    path = Path(__file__).parent / "infinitehbd" / "faults.csv"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [
        Episode(f"h{each['node']}", DAY * float(each["start"]), DAY * float(each["end"]))
        for each in csv.DictReader(lines)
    ]


def test_real_faults_are_merged(faults):
    assert len(faults) == 584
    assert len(merged(faults, DAY)) == 452


def test_how_often_returned_nodes_fail_again(faults):
    found = repair_effectiveness(faults, 349 * DAY)
    assert found.returns == 584
    for days, share in ((1, 0.227), (7, 0.312), (28, 0.419)):
        assert found.again[days] == pytest.approx(share, abs=0.005)


def test_what_was_not_observed_for_long_enough_is_not_known():
    faults = [Episode(f"h{n}", n * DAY, (n + 0.5) * DAY) for n in range(20)]
    faults += [Episode("h0", 2 * DAY, 3 * DAY)]
    found = repair_effectiveness(faults, 20 * DAY)
    # Of h0's two and 18 others a week has passed after 14, and 28 days after none.
    assert found.returns == 21
    assert found.again[1] == 0
    assert found.again[7] == pytest.approx(1 / 14)
    assert found.again[28] is None


class Tried(NamedTuple):
    """How right the worst 20 were, and how many times the fleet's rate of faults was theirs."""

    right: float
    base: float
    lift: float
    most_flagged: int


def tried(faults, first, last, history_days):
    """Return it of every third day as origin, each with the 28 days that follow as truth."""
    right, bases, hits, later_faults, most = [], [], 0, 0, 0
    for origin in range(first, last, 3):
        window = Window((origin - history_days) * DAY, origin * DAY)
        later = [each for each in faults if 0 < each.start / DAY - origin <= 28]
        scores = scores_of(faults, FLEET, window, CONFIG.half_life_days)
        top = [each.node for each in scores[:20]]
        worth = worth_of(top, later, len(FLEET))
        right.append(worth.right_share)
        bases.append(worth.base_share)
        hits += sum(each.node in top for each in later)
        later_faults += len(later)
        inside = [each for each in faults if origin - 28 <= each.start / DAY <= origin]
        most = max(most, len(flagged_of(scores, inside, CONFIG)))
    origins = len(right)
    lift = (hits / (20 * origins)) / (later_faults / origins / len(FLEET))
    return Tried(sum(right) / origins, sum(bases) / origins, lift, most)


def test_the_length_of_history_is_that_of_the_highest_lift_in_the_first_half(faults):
    """No truth of these origins reaches the second half, in which the choice is tested."""
    lifts = {days: tried(faults, 28, 147, days).lift for days in (28, 56, 84, 112, 168)}
    assert max(lifts, key=lifts.get) == CONFIG.history_days


@pytest.mark.parametrize(("first", "last"), [(175, 322), (28, 322)])
def test_who_fails_again_in_a_real_fleet(faults, first, last):
    """In the second half, of which the settings know nothing, and in the whole year."""
    found = tried(faults, first, last, CONFIG.history_days)
    print(found)
    assert found.right >= 0.22
    assert found.lift >= 3.4
    assert found.most_flagged <= 0.025 * len(FLEET)


def test_in_a_fleet_without_lemons_hardly_any_is_named():
    """All nodes fail alike: what two faults in 28 days name is chance, and the interval says so."""
    draw = random.Random(4)
    faults = [
        Episode(draw.choice(FLEET), start := draw.uniform(0, 28) * DAY, start + 3600)
        for _ in range(35)
    ]
    found = find_lemons(faults, dict.fromkeys(FLEET, Signals()), Window(0, 28 * DAY), CONFIG)
    assert len(found.flagged) <= 4
    for lemon in found.flagged:
        fleet_mean = lemon.score.mean / lemon.score.ratio
        assert lemon.score.low <= fleet_mean * 3


def test_the_worst_is_named_with_its_reasons():
    faults = [Episode("h7", DAY * day, DAY * (day + 0.1)) for day in (3, 9, 15, 20, 27)]
    faults += [Episode(f"h{n}", DAY * n / 15, DAY * n / 15 + 60) for n in range(20, 60)]
    signals = dict.fromkeys(FLEET, Signals()) | {"h7": Signals(out_count=5, xid_cnt=3)}
    found = find_lemons(faults, signals, Window(0, 28 * DAY), CONFIG)
    assert [each.score.node for each in found.flagged] == ["h7"]
    lemon = found.flagged[0]
    assert (lemon.episodes, lemon.reasons) == (5, ("xid_cnt", "out_count"))
    assert lemon.score.low <= lemon.score.mean <= lemon.score.high
    assert lemon.score.ratio > 1.4
    assert found.base_share > 0
    # The first half, with the nodes' two faults in it, would have named it, and rightly.
    assert (found.right_share, found.lift > 10) == (1.0, True)
    assert found.probation["h7"] == pytest.approx(7 - 0.9)


def test_a_fleet_without_faults():
    found = find_lemons([], dict.fromkeys(FLEET, Signals()), Window(0, 28 * DAY), CONFIG)
    assert found.flagged == []
    assert found.repairs.again is None
    assert (found.right_share, found.lift) == (None, None)


def test_a_node_of_which_little_was_seen_is_drawn_to_the_mean():
    faults = [Episode(node, 27 * DAY, 27 * DAY + 60) for node in ("h1", "h2", "h3")]
    window = Window(0, 28 * DAY)
    scores = {each.node: each for each in scores_of(faults, FLEET, window, 14, {"h5": 0.0})}
    mean = scores["h5"].mean / scores["h5"].ratio
    assert scores["h5"].mean == pytest.approx(mean)
    assert scores["h4"].mean < mean < scores["h1"].mean


def test_the_seven_signals():
    rows = [
        row("1", 1, "node_fail", nodes=("n1",), name="a"),
        row("2", 2, "completed", nodes=("n1",), name="b", excluded=("n2", "n2")),
        row("3", 3, "node_fail", nodes=("n1", "n2"), name="c"),
        row("4", 4, "failed", nodes=("n2",), name="d", excluded=("n2",)),
    ]
    attempts = [each for chain in chains_of(rows, T0 + 1e6) for each in chain.attempts]
    why = {each.key: attribution_of(each, ()) for each in attempts}
    key = ("3", 3)
    why[key] = why[key]._replace(node="n2")
    found = signals_of(["n1", "n2"], attempts, why, ["n1", "n1"], {"n2": 4}, {"n1": 1})
    assert found["n1"] == Signals(0, 0, 1, 2, 0, 1, 0.5)
    assert found["n2"] == Signals(2, 4, 0, 0, 1, 0, 0.0)


def test_what_each_threshold_would_flag():
    signals = {f"n{number}": Signals(xid_cnt=number // 2) for number in range(8)}
    curve = [each[1:] for each in threshold_curve(signals) if each.signal == "xid_cnt"]
    assert curve == [(1.0, 6, 0.75), (2.0, 4, 0.5), (3.0, 2, 0.25)]
    assert len(threshold_curve(signals)) == 3


def test_merging():
    faults = [
        Episode("a", 0, 100),
        Episode("a", 150, 160),
        Episode("a", 400, None),
        Episode("a", 900, 950),
        Episode("b", 160, 170),
    ]
    assert merged(faults, 100) == [
        Episode("a", 0, 160),
        Episode("b", 160, 170),
        Episode("a", 400, None),
    ]
