"""Blocks of collectives against an obvious computation of them."""

from __future__ import annotations

import pytest

from peerwatch_exporter.sources.collectives.blocks import BLOCK_SECONDS, Blocks


def naive(arrivals, end, size):
    return sum(arrivals[n] for n in range(end - size, end)) / size


@pytest.mark.parametrize("step", [0.01, 0.3, 7.0, 20.0])
def test_block_is_the_mean_of_a_power_of_two_of_them_that_lasts_long_enough(step):
    arrivals = {n: 1.8e9 + n * step + (n % 7) * step / 50 for n in range(1, 9000)}
    blocks = Blocks()
    for sequence, arrival in arrivals.items():
        blocks.add(sequence, arrival)
    block = blocks.newest()
    size = block.collectives
    assert 0 == size & (size - 1)
    assert 0 == block.end % size
    assert 0 <= 9000 - block.end < size
    assert size * step >= BLOCK_SECONDS * 0.99
    assert size == 1 or size / 2 * step < BLOCK_SECONDS * 1.01
    assert naive(arrivals, block.end, size) == pytest.approx(block.arrival, abs=1e-5)


def test_ranks_cut_the_same_blocks_whenever_they_are_seen_first():
    early, late = Blocks(), Blocks()
    for sequence in range(1, 5000):
        early.add(sequence, 100.0 + sequence * 0.05)
        if sequence > 1777:
            late.add(sequence, 100.08 + sequence * 0.05)
    assert early.newest()[:2] == late.newest()[:2]
    assert 0.08 == pytest.approx(late.newest().arrival - early.newest().arrival)


def test_block_with_a_gap_is_not_finished():
    blocks = Blocks()
    for sequence in (*range(1, 700), *range(705, 830)):
        blocks.add(sequence, sequence * 0.2)
    # Of 128 each: the one from 640 on has the gap, the one from 768 on is not finished.
    assert (640, 128) == blocks.newest()[:2]


def test_pause_does_not_make_blocks_of_one():
    blocks = Blocks()
    ends = []
    for sequence in range(1, 4000):
        blocks.add(sequence, sequence * 0.1 + (300 if sequence > 2050 else 0))
        newest = blocks.newest()
        if newest is not None:
            assert 128 <= newest.collectives
            ends.append(newest.end)
    assert ends == sorted(ends)


def test_launched_as_one_counts_once():
    blocks = Blocks()
    for sequence in range(1, 600):
        blocks.add(sequence, float(sequence))
        blocks.add(sequence, float(sequence) + 0.5)
    newest = blocks.newest()
    assert newest.arrival == pytest.approx(newest.end - (newest.collectives + 1) / 2)
