from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_detector.service.members import Group, MembershipView, owners

JOBS = [f"job-{number}" for number in range(1000)]
names = st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=6)


def view(*members: str, **evaluates: set[str]) -> MembershipView:
    return MembershipView(
        frozenset(members), {job: frozenset(who) for job, who in evaluates.items()}
    )


def job_of(member: str, *others: str) -> str:
    """Return a job that this member owns among all of them."""
    return next(job for job in JOBS if owners(job, [member, *others], 1) == (member,))


@pytest.mark.parametrize("members", [1, 2, 3, 8])
@pytest.mark.parametrize("replication", [1, 2])
def test_jobs_are_spread_evenly(members: int, replication: int) -> None:
    group = [f"detector-{number}" for number in range(members)]
    owned = Counter(who for job in JOBS for who in owners(job, group, replication))

    expected = 1000 * min(replication, members) / members
    # Six standard deviations of chance.
    assert all(abs(owned[who] - expected) <= 6 * (expected**0.5) for who in group)


@given(group=names, replication=st.integers(1, 3), job_id=st.text(max_size=8))
def test_a_member_that_goes_moves_its_own_jobs_only(
    group: set[str], replication: int, job_id: str
) -> None:
    before = owners(job_id, group, replication)
    assert min(replication, len(group)) == len(set(before))
    for gone in group:
        after = owners(job_id, group - {gone}, replication)
        if gone in before:
            assert set(before) - {gone} <= set(after)
        else:
            assert before == after


@given(group=st.lists(st.text(min_size=1, max_size=8), unique=True, min_size=1))
def test_all_members_agree_whatever_the_order_they_are_seen_in(group: list[str]) -> None:
    assert owners("job", group, 2) == owners("job", group[::-1], 2)


def test_names_that_are_one_text_when_joined_are_different_members() -> None:
    together = [owners(job, ["a", "ab"], 1) for job in JOBS]
    assert {("a",), ("ab",)} == set(together)
    apart = [owners(f"b{job}", ["a", "ab"], 1) for job in JOBS]
    assert together != apart


def test_a_member_counts_itself_even_where_it_is_not_seen() -> None:
    group = Group("a", 1)
    for _ in range(5):
        group.update(view("b"))
    assert ("a", "b") == group.members


def test_one_look_that_misses_a_member_moves_nothing_and_the_second_does() -> None:
    group = Group("a", 1)
    group.update(view("a", "b"))
    group.update(view("a"))
    assert ("a", "b") == group.members
    group.update(view("a", "b"))
    group.update(view("a"))
    assert ("a", "b") == group.members
    group.update(view("a"))
    assert ("a",) == group.members


def test_a_member_that_comes_counts_at_once() -> None:
    group = Group("a", 1)
    group.update(view("a", "b"))
    theirs = job_of("b", "a")
    assert not group.owns(theirs)
    assert group.owns(job_of("a", "b"))


def test_a_job_stays_until_its_new_owner_publishes_it() -> None:
    job = job_of("b", "a")
    group = Group("a", 1)
    assert {job} == group.share([job], evaluated=[])

    group.update(view("a", "b"))
    assert {job} == group.share([job], evaluated=[job])
    group.update(view("a", "b", **{job: {"a", "b"}}))
    assert set() == group.share([job], evaluated=[job])


def test_a_job_that_was_not_evaluated_yet_goes_at_once() -> None:
    job = job_of("b", "a")
    group = Group("a", 1)
    group.update(view("a", "b"))
    assert set() == group.share([job], evaluated=[])


def test_with_two_copies_a_job_stays_until_both_owners_publish_it() -> None:
    job = next(job for job in JOBS if set(owners(job, "abc", 2)) == {"b", "c"})
    group = Group("a", 2)
    group.update(view("a", "b", "c", **{job: {"a", "b"}}))
    assert {job} == group.share([job], evaluated=[job])
    group.update(view("a", "b", "c", **{job: {"a", "b", "c"}}))
    assert set() == group.share([job], evaluated=[job])


def test_a_job_comes_back_when_its_owner_goes() -> None:
    job = job_of("b", "a")
    group = Group("a", 1)
    group.update(view("a", "b", **{job: {"b"}}))
    assert set() == group.share([job], evaluated=[])
    for _ in range(2):
        group.update(view("a"))
    assert {job} == group.share([job], evaluated=[])


def test_jobs_that_do_not_run_are_nobodys() -> None:
    assert set() == Group("a", 1).share([], evaluated=["ended"])
