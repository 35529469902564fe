"""Series become evidence, and ``diagnose --root`` says what a job failed of."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import promql_parser
import pytest

from detector.fake_prometheus import FakePrometheus, fake_prometheus, refuse, success
from each_case import each_case
from peerwatch_detector.__main__ import main
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.answer import root_json, root_text
from peerwatch_detector.diagnosis.root.live.gathering import evidence_of, job_places
from peerwatch_detector.diagnosis.root.live.queries import HAS_EVIDENCE, QUERIES
from peerwatch_detector.diagnosis.root.live.root import ask_root, root_of
from peerwatch_detector.diagnosis.root.text import summary_text
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading import promql

NOW = 1_800_000_000.0


def rows(*labels_and_values: tuple[dict[str, str], float]) -> list[Series]:
    return [Series(labels, np.array([NOW]), np.array([v])) for labels, v in labels_and_values]


def ranks() -> list[Series]:
    return rows(*[({"node": f"n{r // 2}", "rank": str(r)}, 1.0) for r in range(16)])


def lines(**more: Any) -> list[Series]:
    return rows(
        *[
            (
                {"node": f"n{r // 2}", "rank": str(r), "class": "D", "signature": "gloo_connection"}
                | more,
                NOW - 50 + r,
            )
            for r in range(16)
            if r // 2 != 5
        ]
    )


def test_a_root_says_of_which_series_only_a_part_was_given() -> None:
    found = root_of({"ranks": ranks(), "log": PartialAnswer(lines())}, NOW, "7")
    assert "Prometheus left out some of the series of log." in found.root.missing
    whole = root_of({"ranks": ranks(), "log": lines()}, NOW, "7")
    assert not any("left out" in text for text in whole.root.missing)


def test_a_gpu_that_fell_off_the_bus_is_found_in_series() -> None:
    samples = {
        "ranks": ranks(),
        "places": rows(({"node": "n5", "topology_leaf": "l1", "topology_rack": ""}, NOW)),
        "xid": rows(({"node": "n5", "gpu": "1", "xid": "79"}, NOW - 55)),
        "log": lines(),
        "peers": rows(
            ({"node": "n4", "rank": "8", "peer": "10", "signature": "gloo_connection"}, 3.0)
        ),
        "step": rows(({}, NOW - 70)),
        "exits": rows(({"node": "n4", "rank": "8", "signal": "SIGABRT", "code": ""}, 1.0)),
        "halted": rows(({"node": "n4", "rank": "8"}, 20.0)),
    }
    job = job_places(samples)
    evidence = evidence_of(samples, NOW, "7")

    assert (8, "n5", {"n5": {"leaf": "l1"}}) == (len(job.nodes), job.ranks[10], job.places)
    (complaint,) = [each for each in evidence if each.peer_rank is not None]
    assert (8, 10, NOW - 42) == (complaint.rank, complaint.peer_rank, complaint.time)
    (end,) = [each for each in evidence if each.kind == "process"]
    assert ("killed", "SIGABRT", NOW - 20) == (end.name, end.text, end.time)
    (cause,) = find_root(job, evidence, job_id="7", until=NOW).causes
    assert (("n5",), "isolate") == (cause.nodes, cause.action)


@pytest.mark.parametrize(
    ("name", "labels", "value", "expected"),
    [
        ("xid_class", {"xid": "145", "class": "hardware"}, NOW, ("xid", "145", "hardware")),
        ("sxid", {"sxid": "20034", "severity": "fatal"}, NOW, ("sxid", "20034", "fatal")),
        ("kernel", {"signature": "nic_cable", "class": "N"}, NOW, ("kernel", "nic_cable", "N")),
        ("gpu_lost", {"gpu": "3"}, NOW, ("gpu", "lost", "")),
        ("link_down", {"device": "mlx5_0"}, NOW, ("nic", "link_downed", "")),
        ("memory", {}, NOW, ("host", "edac_uncorrected", "")),
        ("boot", {}, NOW, ("boot", "boot", "")),
        ("absent", {}, NOW, ("absent", "absent", "")),
        ("check", {"check": "nvlink"}, NOW, ("check", "nvlink", "fail")),
        ("config", {"key": "nic_mtu"}, NOW, ("config", "nic_mtu", "minority")),
        ("changed", {"key": "driver.version"}, NOW, ("change", "driver.version", "")),
        ("finding", {"metric": "pfc_tx_rate"}, NOW, ("finding", "pfc_tx_rate", "")),
        (
            "verdict",
            {"class": "not_launched", "confidence": "sure", "rank": "3"},
            NOW,
            ("collective", "not_launched", "sure"),
        ),
        ("verdict", {"class": "rank_stopped", "rank": "3"}, NOW, ("process", "stopped", "")),
        ("traffic", {"class": "traffic_fallen"}, NOW, ("traffic", "fallen", "")),
    ],
)
def test_each_series_is_an_observation(
    name: str, labels: dict[str, str], value: float, expected: tuple[str, str, str]
) -> None:
    (each,) = evidence_of({name: rows(({"node": "n1"} | labels, value))}, NOW, "7")

    assert "n1" == each.node
    assert expected == (each.kind, each.name, each.class_name)


@pytest.mark.parametrize("order", [1, -1])
def test_a_rank_is_where_it_was_seen_last(order: int) -> None:
    # The job was started again, and n5 was replaced by a1.
    seen = [({"node": "n5", "rank": "10"}, NOW - 600), ({"node": "a1", "rank": "10"}, NOW)]
    assert {10: "a1"} == job_places({"ranks": rows(*seen[::order])}).ranks


def test_a_line_belongs_to_the_node_of_its_rank_wherever_it_was_read() -> None:
    # Below srun the file of the job is on n0, with the lines of all ranks.
    line = {"node": "n0", "class": "H", "signature": "cuda_ecc"}
    standing = {"ranks": ranks(), "step": rows(({}, NOW - 90))}
    labelled = standing | {"log": rows((line | {"rank": "11"}, NOW - 80))}
    (cause,) = root_of(labelled, NOW, "7").root.causes
    assert (("n5",), "isolate") == (cause.nodes, cause.action)

    nobodys = standing | {"log": rows((line | {"rank": ""}, NOW - 80))}
    assert [""] == [each.node for each in evidence_of(nobodys, NOW, "7") if each.kind == "log"]
    assert () == tuple(node for c in root_of(nobodys, NOW, "7").root.causes for node in c.nodes)


def test_a_setting_that_differs_has_the_time_of_its_change_or_none() -> None:
    def answered(changed: float) -> dict[str, Any]:
        mtu = rows(({"node": "n5", "key": "nic.mtu"}, changed))
        samples = {"ranks": ranks(), "log": lines(), "step": rows(({}, NOW - 70)), "config": mtu}
        found = root_of(samples, NOW, "7")
        return root_json(found.root, found.places)["causes"][0] | {
            "text": root_text(found.root, found.places)
        }

    dated, undated = answered(NOW - 300), answered(0.0)
    for cause, expected in ((dated, NOW - 300), (undated, None)):
        (setting,) = [each for each in cause["speaks_for"] if each["kind"] == "config"]
        assert expected == setting["time"]
        assert expected == cause["time_seconds"]
    assert "for: 2027-01-15 07:55:00 UTC config nic.mtu (n5)" in dated["text"]
    assert "for: from before config nic.mtu (n5)" in undated["text"]


def test_logs_that_cannot_be_read_are_said_to_be_missing() -> None:
    samples = {
        "ranks": ranks(),
        "step": rows(({}, NOW - 70)),
        "unread": rows(({"reason": "permission_denied"}, 3.0)),
    }
    missing = root_of(samples, NOW, "7").root.missing
    assert "Nothing of the ranks' logs or ends is known." in missing
    assert "Logs on 3 nodes cannot be read (permission denied)." in missing


def test_what_cannot_be_read_is_left_out() -> None:
    samples = {
        "xid": rows(({"node": "n1", "xid": "79"}, float("nan"))),
        "log": rows(({"node": "n1", "rank": "zero", "class": "?", "signature": "x"}, NOW)),
        "ranks": rows(({"node": "n1", "rank": "-1"}, 1.0)),
    }

    assert () == evidence_of(samples, NOW, "7")
    assert {} == job_places(samples).ranks


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus(success("vector", [])) as running:
        yield running


def answer(server: FakePrometheus, samples: dict[str, list[Series]]) -> None:
    """Let the server answer some queries, refuse one, and know nothing else."""
    now = time.time()
    by_query = {promql.job_query(QUERIES[name], "7"): found for name, found in samples.items()}
    refused = promql.job_query(QUERIES["link_down"], "7")

    def respond(handler: BaseHTTPRequestHandler) -> None:
        query = server.requests[-1].form["query"]
        if query == refused:
            refuse(422, "execution", "too many samples")(handler)
            return
        found = by_query.get(query, [])
        shown = [
            {
                "metric": dict(each.labels),
                "value": [now, str(float(each.values[-1]) - NOW + now)],
            }
            for each in found
        ]
        success("vector", shown)(handler)

    server.response = respond


def test_the_command_reads_a_job_and_names_what_was_not_answered(
    server: FakePrometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    xid = rows(({"node": "n5", "gpu": "1", "xid": "79"}, NOW - 55))
    answer(server, {"ranks": ranks(), "log": lines(), "xid": xid})
    command = ["diagnose", "--job-id", "7", "--root", "--prometheus", server.url]

    assert 0 == main([*command, "--json"])
    root = json.loads(capsys.readouterr().out)["root"]
    assert [["n5"]] == [cause["nodes"] for cause in root["causes"]]
    assert any("link_down" in text for text in root["missing"])

    assert 0 == main([*command, "--at", "1000000000"])
    assert "1000000000" in server.requests[-1].form["time"]
    assert "Nothing is wrong" in capsys.readouterr().out


def test_a_job_that_nobody_knows_is_no_answer(
    server: FakePrometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["diagnose", "--job-id", "8", "--root", "--prometheus", server.url]
    assert 1 == main(command)
    assert "no rank of job '8'" in capsys.readouterr().err


@each_case("name", QUERIES)
def test_every_query_is_promql(name: str) -> None:
    assert promql_parser.parse(promql.job_query(QUERIES[name], 'a"b'))


def test_the_sign_of_a_job_is_promql() -> None:
    assert promql_parser.parse(promql.job_query(HAS_EVIDENCE, 'a"b'))


def test_lines_that_a_job_went_on_after_are_shown_but_decide_nothing() -> None:
    caught = {"node": "n3", "rank": "6", "class": "U", "signature": "cuda_oom"}
    working = {"ranks": ranks(), "log": rows((caught, NOW - 20)), "step": rows(({}, NOW - 5))}
    found = root_of(working, NOW, "7")
    assert ["cuda_oom"] == [each.name for each in found.evidence]
    assert () == found.root.causes

    standing = working | {"step": rows(({}, NOW - 90)), "log": rows((caught, NOW - 88))}
    (cause,) = root_of(standing, NOW, "7").root.causes
    assert ("user", ()) == (cause.domain, cause.nodes)

    before = working | {"step": rows(({}, NOW - 90)), "log": rows((caught, NOW - 400))}
    assert "user" not in {cause.domain for cause in root_of(before, NOW, "7").root.causes}


def test_the_first_error_of_a_rank_dates_no_line_that_came_again() -> None:
    line = {"node": "n3", "rank": "6", "class": "D", "signature": "gloo_connection"}
    samples = {
        "ranks": ranks(),
        "step": rows(({}, NOW - 90)),
        "first": rows((line, NOW - 3000)),
        "log": rows((line, NOW - 80)),
    }
    assert [NOW - 90, NOW - 80] == [each.time for each in root_of(samples, NOW, "7").evidence]
    again = samples | {"first": rows((line, NOW - 85))}
    assert NOW - 85 == root_of(again, NOW, "7").evidence[-1].time


def test_what_the_root_says_itself_is_no_evidence_of_it() -> None:
    asked = promql.job_query(QUERIES["verdict"], "7")
    assert "rank_exited|" in asked
    assert "gpu_unavailable" not in asked


def test_a_server_that_answers_nothing_is_an_error() -> None:
    def silent(_: str) -> list[Series]:
        raise ReadError("timeout", "Too late.")

    with pytest.raises(ReadError, match="No query about the root of job '7'"):
        ask_root(silent, "7", NOW)


def test_an_exporter_that_does_not_answer_is_no_dead_node() -> None:
    absent = {"ranks": ranks(), "absent": rows(({"node": "n5"}, NOW - 60))}
    standing = absent | {"step": rows(({}, NOW - 100))}
    updated = root_of(standing, NOW, "7")
    assert "absent" in {each.kind for each in updated.evidence}
    assert not [cause for cause in updated.root.causes if cause.nodes]

    known = {"finding": rows(({"node": "n5", "metric": "absent"}, NOW - 60))}
    (cause,) = root_of(standing | known, NOW, "7").root.causes
    assert (("n5",), "node_gone") == (cause.nodes, cause.symptom)

    long_ago = absent | {"absent": rows(({"node": "n5"}, NOW - 200))}
    (cause,) = root_of(long_ago | {"step": rows(({}, NOW - 210))}, NOW, "7").root.causes
    assert ("n5",) == cause.nodes
    working = long_ago | known | {"step": rows(({}, NOW - 5))}
    assert not [cause for cause in root_of(working, NOW, "7").root.causes if cause.nodes]


def test_addresses_in_complaints_are_those_of_nodes() -> None:
    samples = {
        "ranks": ranks(),
        "addresses": rows(({"node": "n5", "address": "10.0.0.5"}, 1.0)),
        "xid": rows(({"node": "n5", "gpu": "1", "xid": "79"}, NOW - 55)),
        "log": lines(),
        "peers": rows(
            *[
                (
                    {
                        "node": f"n{r // 2}",
                        "rank": str(r),
                        "peer": "10.0.0.5",
                        "signature": "gloo_connection",
                    },
                    1.0,
                )
                for r in range(16)
                if r // 2 != 5
            ]
        ),
    }
    found = root_of(samples, NOW, "7")
    assert {"10.0.0.5": "n5"} == found.places.addresses
    (cause,) = found.root.causes
    text = summary_text(cause, found.root, found.places)
    assert text.endswith("5 s before 14 ranks lost their connection to it.")


def test_traffic_that_stops_on_all_nodes_names_nobody() -> None:
    samples = {
        "ranks": ranks(),
        "traffic": rows(({"class": "traffic_stopped", "node": ""}, NOW - 200)),
    }
    (evidence,) = evidence_of(samples, NOW, "7")
    (cause,) = find_root(job_places(samples), [evidence], job_id="7", until=NOW).causes

    assert ("traffic", "job_stopped", "") == (evidence.kind, evidence.name, evidence.node)
    assert ((), "undecided", "inspect") == (cause.nodes, cause.confidence, cause.action)


def test_traffic_of_one_node_needs_a_second_sign() -> None:
    samples = {
        "ranks": ranks(),
        "traffic": rows(({"class": "traffic_fallen", "node": "n5"}, NOW - 200)),
    }
    alone = find_root(job_places(samples), evidence_of(samples, NOW, "7"), job_id="7", until=NOW)
    samples["verdict"] = rows(
        ({"node": "n5", "class": "communication_straggler", "confidence": "likely"}, NOW - 150)
    )
    both = find_root(job_places(samples), evidence_of(samples, NOW, "7"), job_id="7", until=NOW)

    assert [] == [cause.nodes for cause in alone.causes if cause.nodes]
    assert [("n5",)] == [cause.nodes for cause in both.causes]
