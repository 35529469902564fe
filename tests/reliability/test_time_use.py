from __future__ import annotations

import random

import pytest

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.time_use import (
    UNMEASURED,
    Progress,
    Span,
    assumed,
    badput_of,
    ettr_of,
    stated,
    stated_checkpoint,
    time_use,
)
from reliability_rows import T0, row

NOW = T0 + 1e6
HOUR, RESTART = stated(3600.0), stated(300.0)


def attempt(run, state="node_fail", **other):
    return chains_of([row("1", 1, state, 0, 0, run, **other)], NOW)[0].first


@pytest.mark.parametrize(
    ("run", "state", "progress", "lost", "restart"),
    [
        # Nothing was saved before the first checkpoint, so all of it is lost.
        (2000, "node_fail", UNMEASURED, (1700, 1700, 1700), 300),
        # Later half an interval in the mean, between nothing and all of it.
        (36_000, "node_fail", UNMEASURED, (0, 1800, 3600), 300),
        # A job that ended by itself loses nothing.
        (36_000, "completed", UNMEASURED, (0, 0, 0), 300),
        # It never came to work.
        (100, "node_fail", UNMEASURED, (0, 0, 0), 100),
        # Measured: no bounds are left.
        (36_000, "node_fail", Progress(T0 + 700, T0 + 35_500), (500, 500, 500), 700),
        # A checkpoint of an earlier attempt is none of this one's.
        (2000, "node_fail", Progress(T0 + 100, T0 - 9_000), (2000, 2000, 2000), 100),
    ],
)
def test_what_is_lost(run, state, progress, lost, restart):
    use = time_use(attempt(run, state), progress, state == "node_fail", HOUR, RESTART)
    assert tuple(use.lost) == lost
    assert use.restart.expected == restart
    assert use.productive.expected + use.unproductive.expected == run
    assert use.productive.low <= use.productive.expected <= use.productive.high


@pytest.mark.parametrize(
    ("comment", "seconds"),
    [
        ("ckpt=20", 1200),
        ("run 7; ckpt=1.5, more", 90),
        ("ckpt=0", None),
        ("xckpt=5", None),
        ("ckpt=5m", None),
        ("", None),
    ],
)
def test_interval_of_a_comment(comment, seconds):
    found = stated_checkpoint(comment)
    assert (found and found.span.expected) == seconds


def test_the_weakest_source_is_named():
    uses = [
        time_use(attempt(9000, "completed"), Progress(T0 + 60), False, assumed(3600), assumed(300)),
        time_use(attempt(9000, comment="ckpt=20"), UNMEASURED, True, assumed(3600), RESTART),
    ]
    assert ettr_of(uses[:1]).weakest == "measured"
    assert ettr_of(uses).weakest == "stated"
    whole = time_use(attempt(9000), UNMEASURED, True, assumed(3600), assumed(300))
    assert ettr_of([*uses, whole]).weakest == "assumed"
    assert whole.interval.span == Span(1800, 3600, 7200)


def test_ratio_of_nothing_is_none():
    assert ettr_of([]).ratio is None


def test_ratio():
    rows = [
        row("1", 1, "node_fail", submit=0, start=1000, end=11_000, comment="ckpt=60"),
        row("1", 2, "completed", submit=11_000, start=12_000, end=20_000),
    ]
    (chain,) = chains_of(rows, NOW)
    uses = [
        time_use(each, UNMEASURED, each.row.state == "node_fail", HOUR, RESTART)
        for each in chain.attempts
    ]
    found = ettr_of(uses)
    assert found.wall == pytest.approx(chain.wall_seconds)
    assert found.ratio.expected == pytest.approx((10_000 - 300 - 1800 + 8_000 - 300) / 20_000)
    assert found.ratio.low == pytest.approx(found.ratio.expected - 1800 / 20_000)
    lost = badput_of(chain, {each.key: use for each, use in zip(chain.attempts, uses, strict=True)})
    assert lost == {
        "program_startup": 300 * 8,
        "infrastructure_recovery_from_disruption": 300 * 8,
        "wasted_progress_from_disruption": 1800 * 8,
    }


def test_known_truth_of_simulated_jobs_lies_in_the_range():
    """Jobs that save every 20 to 60 minutes and start for 2 to 9, of which nobody says so."""
    draw = random.Random(5)
    held = 0
    for _ in range(300):
        interval, restart = draw.uniform(1800, 5400), draw.uniform(160, 590)
        uses, productive, wall = [], 0.0, 0.0
        for _ in range(12):
            wait, life = draw.expovariate(1 / 600), draw.expovariate(1 / 30_000)
            worked = max(0.0, life - restart)
            productive += worked // interval * interval
            wall += wait + life
            item = chains_of([row("1", 1, "node_fail", 0, wait, wait + life)], NOW)[0].first
            uses.append(time_use(item, UNMEASURED, True, assumed(3600), assumed(300)))
        ratio = ettr_of(uses).ratio
        held += ratio.low <= productive / wall <= ratio.high
    assert held >= 285
