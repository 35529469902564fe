"""A job whose hosts are replaced while it runs, through the whole detector."""

from __future__ import annotations

import numpy as np
import pytest

from detector.fakes import START, FakeClock, FakeReader, Span, config_for, healthy, node_names
from detector.world import World
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.service.detector import Detector

# The job is replayed once for all.
pytestmark = pytest.mark.xdist_group("elastic_job")

NODES, REPLACED, MINUTES = 8, 30, 55
# The minute in which one more node vanishes, and nobody replaces it.
LAST = 48


@pytest.fixture(scope="module")
def absent() -> list[set[str]]:
    """Return who is found absent after every minute.

    In each of the first thirty one of eight hosts vanishes and another joins; then the job runs on.
    """
    config, clock = config_for(), FakeClock()
    reader = FakeReader(clock, config)
    names = node_names(NODES + REPLACED)
    values = healthy(len(names), MINUTES * 60)
    for number in range(REPLACED):
        values[NODES + number, : 60 * (number + 1)] = np.nan
    reader.add_job("job-1", {"load": values}, names, START)
    for number in range(REPLACED):
        change = START + 60.0 * (number + 1)
        new = names[NODES + number]
        reader.members["job-1", new], reader.present[new] = [Span(change)], [Span(change)]
        reader.remove_node("job-1", names[number], change)
    reader.remove_node("job-1", names[-1], START + 60.0 * LAST)
    here = World(config, clock, reader, Detector(config, reader, EMPTY, clock))
    found = []
    for _ in range(MINUTES - 1):
        here.run(60.0, cycle=30.0)
        found.append({key[1] for key in here.findings() if key[3] == "absent"})
    return found


def test_hosts_that_were_replaced_are_found_absent_for_some_ten_minutes_only(
    absent: list[set[str]],
) -> None:
    # More have gone by then than the job has nodes, and absence is detected still.
    assert {11} == {len(found) for found in absent[14 : REPLACED + 1]}
    assert set(node_names(REPLACED)[-11:]) == absent[REPLACED]


def test_none_is_left_once_no_host_is_replaced_any_more(absent: list[set[str]]) -> None:
    assert {frozenset()} == {frozenset(found) for found in absent[REPLACED + 11 : LAST]}


def test_a_node_that_vanishes_after_all_that_is_found(absent: list[set[str]]) -> None:
    assert {node_names(NODES + REPLACED)[-1]} == absent[-1]


def test_nobody_who_came_in_their_place_is_found(absent: list[set[str]]) -> None:
    assert set().union(*absent[: LAST - 1]) == set(node_names(REPLACED))
