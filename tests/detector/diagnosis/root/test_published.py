"""The root of a failure beside the verdicts of diagnosers: no contradiction, nothing twice."""

from __future__ import annotations

from dataclasses import replace

from detector.diagnosis.fake_diagnosers import VERDICT
from detector.diagnosis.root.test_live import NOW, lines, ranks, rows
from peerwatch_detector.diagnosis.root.answer import root_text
from peerwatch_detector.diagnosis.root.live.root import LiveRoot, root_of
from peerwatch_detector.diagnosis.root.published import beside_root, root_verdicts
from peerwatch_detector.frame import Series

STANDS = rows(({}, NOW - 100))
WORKS = rows(({}, NOW - 5))
XID = rows(({"node": "n5", "gpu": "3", "xid": "79"}, NOW - 55))
HANG = replace(VERDICT, node="n2", rank=4, class_name="not_launched", action="isolate")


def found(**samples: list[Series]) -> LiveRoot:
    return root_of({"ranks": ranks(), **samples}, NOW, "7")


def test_what_to_do_comes_first_and_how_sure_it_is_last() -> None:
    (root,) = root_verdicts(found(xid=XID, log=lines(), step=STANDS), ())

    assert ("n5", None, "gpu_unavailable") == (root.node, root.rank, root.class_name)
    assert ("hardware", "sure", "isolate") == (root.domain, root.confidence, root.action)
    assert (
        "Isolate n5 and restart: GPU 3 fell off the bus (XID 79), 5 s before 14 ranks lost their "
        "connection. Almost certain."
    ) == root.summary
    assert ("critical", NOW - 55) == (root.severity, root.start_time)


def test_what_is_not_sure_says_what_is_missing() -> None:
    verdict = rows(({"node": "n5", "rank": "10", "class": "not_launched"}, NOW - 70))
    (root,) = root_verdicts(found(verdict=verdict, step=STANDS), ())

    assert ("n5", "likely", "inspect") == (root.node, root.confidence, root.action)
    assert root.summary.startswith("Examine n5 first: rank 10 ")
    assert " Likely. Nothing of the ranks' logs or ends is known." in root.summary
    assert root.severity is None


def test_the_longest_sentence_fits_a_label() -> None:
    names = [f"a-node-with-a-very-long-name-{n:0200d}" for n in range(2)]
    xids = rows(*[({"node": node, "gpu": "0", "xid": "79"}, NOW - 55) for node in names])
    for root in root_verdicts(found(xid=xids, log=lines(), step=STANDS), ()):
        assert len(root.summary) <= 500


def findings(*nodes: str) -> list[Series]:
    return rows(*[({"node": node, "metric": "gpu_usage"}, NOW - 300) for node in nodes])


def test_an_open_question_is_asked_only_of_a_job_that_stands_and_names_nobody() -> None:
    both = findings("n5", "n6")
    (root,) = root_verdicts(found(finding=both, step=STANDS), ())
    assert ("", "undecided") == (root.node, root.confidence)
    assert root.summary.startswith("Run checks before a restart; isolate nobody: ")

    assert () == root_verdicts(found(finding=both, step=STANDS), {"n5", "n6"})
    assert () == root_verdicts(found(finding=both, step=WORKS), ())
    assert () == root_verdicts(None, ())


def test_the_only_node_that_statistics_find_is_a_suspect_and_the_page_says_so() -> None:
    only = findings("n5")
    # The same beside the finding itself, and where nobody was told of it.
    for named in ({"n5"}, ()):
        (root,) = root_verdicts(found(finding=only, step=STANDS), named)
        assert ("n5", "undecided", "inspect") == (root.node, root.confidence, root.action)
        assert root.summary.startswith(
            "Examine n5 first: the job stands, and of all nodes only this one differs from its "
            "peers (gpu usage). As likely as its finding says; a check of the node decides."
        )
        assert "isolate nobody" not in root.summary
        # It is the finding's to page.
        assert root.severity is None

    # What names another node contradicts it.
    assert () == root_verdicts(found(finding=only, step=STANDS), {"n5", "n2"})
    assert () == root_verdicts(found(finding=only, step=STANDS), {"n2"})


def test_a_page_about_a_job_that_goes_on_begins_with_what_to_do_too() -> None:
    (root,) = root_verdicts(found(finding=findings("n5"), step=WORKS), {"n5"})

    assert ("n5", "undecided", "inspect", None) == (
        root.node,
        root.confidence,
        root.action,
        root.severity,
    )
    assert (
        "Examine n5 first: the job goes on, and of all nodes only this one differs from its peers "
        "(gpu usage). As likely as its finding says; a check of the node decides."
    ) == root.summary
    assert () == root_verdicts(found(finding=findings("n5", "n6"), step=WORKS), {"n5", "n6"})


def test_a_suspect_is_checked_first_and_what_would_settle_it_is_said() -> None:
    said = "n5: GPU usage 12 % (peers 97 %); the job stands; very likely at fault: a slow GPU."
    text = rows(({"node": "n5", "gpu": "", "metric": "gpu_usage", "summary": said}, 1.0))
    live = found(finding=findings("n5"), finding_text=text, step=STANDS)
    answer = root_text(live.root, live.places)

    assert f"finding gpu_usage (n5): {said}" in answer
    assert "  against: no second sign points at it" in answer
    assert (
        "  would change it: a check of n5: one that fails is the second sign, one that passes "
        "clears it"
    ) in answer
    assert "peerwatch-check full on n5: the nodes that evidence points at" in answer


def test_a_second_sign_decides_and_one_that_is_half_as_strong_leaves_the_suspicion() -> None:
    silent = rows(({"node": "n5", "rank": "10", "class": "not_launched"}, NOW - 70))
    (cause,) = found(finding=findings("n5"), verdict=silent, step=STANDS).root.causes
    assert ("likely", False) == (cause.confidence, cause.is_suspicion)

    (of_two,) = found(finding=findings("n5", "n6"), step=STANDS).root.causes
    assert ((), False) == (of_two.nodes, of_two.is_suspicion)


def test_of_a_job_that_goes_on_the_answer_is_not_that_it_stands() -> None:
    live = found(finding=findings("n5"), step=WORKS)
    answer = root_text(live.root, live.places)

    assert answer.startswith("Examine n5 first: the job goes on, and of all nodes only this one")
    assert "What to run:" not in answer
    assert "stands" not in answer

    live = found(finding=findings("n5", "n6"), step=WORKS)
    answer = root_text(live.root, live.places)
    assert "The job goes on, and nothing that was observed names a cause." in answer
    assert "What to run:" not in answer
    assert "stands" not in answer


def test_a_class_stands_once_on_a_node() -> None:
    both = rows(
        ({"node": "n5", "gpu": "3", "xid": "79"}, NOW - 55),
        ({"node": "n5", "gpu": "2", "xid": "79"}, NOW - 54),
        ({"node": "n6", "gpu": "2", "xid": "79"}, NOW - 54),
    )
    roots = root_verdicts(found(xid=both, log=lines(), step=STANDS), ())
    assert [("n5", "gpu_unavailable"), ("n6", "gpu_unavailable")] == sorted(
        (each.node, each.class_name) for each in roots
    )


def test_no_other_node_is_taken_away_beside_a_root() -> None:
    roots = root_verdicts(found(xid=XID, log=lines(), step=STANDS), ())
    on_it = replace(HANG, node="n5", rank=10)
    elsewhere, same = beside_root([HANG, on_it], roots)

    assert ("n2", "unknown", "inspect") == (elsewhere.node, elsewhere.domain, elsewhere.action)
    assert ("n5", "hardware", "isolate") == (same.node, same.domain, same.action)


def test_an_undecided_root_changes_no_verdict() -> None:
    roots = root_verdicts(found(finding=findings("n5"), step=STANDS), ())
    assert (HANG,) == beside_root([HANG], roots)
    assert (HANG,) == beside_root([HANG], ())


def test_of_a_failed_program_no_node_is_taken_away() -> None:
    program = {"node": "n3", "rank": "6", "error": "builtins.ValueError", "code": "1"}
    roots = root_verdicts(
        found(
            exits=rows((program, 1.0)),
            halted=rows(({"node": "n3", "rank": "6"}, 90.0)),
            step=STANDS,
        ),
        {"n2"},
    )
    assert [("", "user_code", "ask")] == [(r.node, r.class_name, r.action) for r in roots]
    (verdict,) = beside_root([HANG], roots)
    assert "inspect" == verdict.action
