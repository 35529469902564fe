"""Whose lines a file has, and that a file of all nodes is not counted by each of them."""

from __future__ import annotations

from types import SimpleNamespace

from log_cases import claim_of, rank_target
from peerwatch_common.signatures.event import Event
from peerwatch_exporter.sources.logs.owners import FileSystems, Owner, owner_of
from peerwatch_exporter.sources.logs.tally import RanksHere, Tally
from peerwatch_exporter.sources.logs.targets import Targets
from peerwatch_exporter.sources.logs.totals import LogTotals

HERE = Targets((rank_target(0), rank_target(1)), first_jobs=frozenset({"job"}))
ELSEWHERE = Targets((rank_target(2), rank_target(3)))
SIGNATURE = SimpleNamespace(id="connection_closed", event_class=SimpleNamespace(value="D"))


def event(**facts):
    return Event(SIGNATURE, b"Connection closed by peer", **facts)


def counted(owner, *events, ranks=((("job", 0)), ("job", 1))):
    tally = Tally()
    here = RanksHere({(job, rank): rank for job, rank in ranks}, frozenset(ranks))
    for each in events:
        tally.add(each, owner, here, 1.0)
    return {key.rank: count for key, (count, _) in tally.events.items()}


def test_a_local_file_of_one_rank_is_its_own(tmp_path):
    claims = [claim_of(tmp_path, rank=1), claim_of(tmp_path, rank=None)]
    assert Owner("job", 1) == owner_of(claims, HERE, is_local=True)


def test_a_local_file_of_several_ranks_is_the_jobs(tmp_path):
    claims = [claim_of(tmp_path, rank=0), claim_of(tmp_path, rank=1)]
    assert Owner("job", None) == owner_of(claims, HERE, is_local=True)


def test_a_file_that_all_nodes_write_counts_unnamed_lines_on_the_first(tmp_path):
    claims = [claim_of(tmp_path, rank=0), claim_of(tmp_path, rank=1)]
    first = owner_of(claims, HERE, is_local=False)
    other = owner_of(claims, ELSEWHERE, is_local=False)
    assert (True, True) == (first.is_shared, first.counts_unnamed)
    assert (True, False) == (other.is_shared, other.counts_unnamed)


def test_a_shared_file_with_the_ranks_number_is_its_own(tmp_path):
    owner = owner_of([claim_of(tmp_path, rank=2, names_rank=True)], ELSEWHERE, is_local=False)
    assert Owner("job", 2) == owner


def test_a_file_that_one_of_several_ranks_has_to_itself_is_its_own(tmp_path):
    assert Owner("job", 2) == owner_of([claim_of(tmp_path, rank=2)], ELSEWHERE, is_local=False)


def test_a_file_of_the_only_rank_of_a_node_may_be_everybodys(tmp_path):
    alone = Targets((rank_target(3),))
    assert owner_of([claim_of(tmp_path, rank=3)], alone, is_local=False).is_shared


def test_a_file_that_only_a_launcher_holds_counts_for_all_ranks(tmp_path):
    claims = [claim_of(tmp_path, rank=None, only_here=True)]
    owner = owner_of(claims, HERE, is_local=False)
    assert {"": 1, "7": 1} == counted(owner, event(), event(rank=7))


def test_of_a_shared_file_only_ranks_of_this_node_count():
    first = Owner("job", None, is_shared=True, counts_unnamed=True)
    other = first._replace(counts_unnamed=False)
    events = event(), event(rank=1), event(rank=7), event(local_rank=0)
    assert {"": 1, "1": 1, "0": 1} == counted(first, *events)
    assert {"1": 1, "0": 1} == counted(other, *events)


def test_a_ranks_own_file_is_believed_before_what_a_line_quotes():
    assert {"1": 1} == counted(Owner("job", 1), event(rank=3))


def test_peers_and_first_errors_are_kept():
    tally = Tally()
    ranks = RanksHere({}, ())
    tally.add(event(peer_rank=5, cascade=True), Owner("job", 0), ranks, 3.0)
    tally.add(event(peer_address="10.0.0.7"), Owner("job", 0), ranks, 4.0)
    totals = LogTotals(100)
    totals.add({**tally.take(), "read": {"job": 10}, "skipped": {}})
    assert {
        ("job", "0", "5", "connection_closed"): 1,
        ("job", "0", "10.0.0.7", "connection_closed"): 1,
    } == totals.peers
    assert 4.0 == totals.firsts["job", "0"].time
    assert {("job", "0", "D", "connection_closed"): 4.0} == totals.last


def test_the_first_error_is_redacted_and_kept_only_where_asked():
    said = Event(SIGNATURE, b"connection to https://me:secret@host failed, password=hunter2")
    texts = []
    for keeps in (False, True):
        tally = Tally(keeps_texts=keeps)
        for _ in range(2):
            tally.add(said, Owner("job", 0), RanksHere({}, ()), 1.0)
        texts += [first.text for first in tally.firsts.values()]
    assert "" == texts[0]
    assert texts[1].startswith("connection to https://")
    assert "secret@" not in texts[1]
    assert "hunter2" not in texts[1]


def test_series_are_bounded():
    totals = LogTotals(3)
    for rank in range(10):
        report = {
            "events": [["job", str(rank), "D", "timeout", 1, 1.0]],
            "peers": [["job", "0", str(rank), "timeout", 1]],
            "firsts": [],
            "read": {},
            "skipped": {},
        }
        totals.add(report)
    assert 7 == totals.events["job", "other", "D", "other"]
    assert 7 == totals.peers["job", "other", "other", "other"]
    totals.forget(["job"])
    assert {} == totals.events


def test_file_systems_of_one_machine_are_known_by_their_type(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mountinfo").write_text(
        "30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "40 30 0:50 / /home rw shared:2 - nfs4 server:/home rw\n"
    )
    known = FileSystems(tmp_path, lambda: 0.0)
    assert known.is_local(0x801)
    assert not known.is_local(50)
    assert known.is_local(77)
