"""A fatal line in a log names its node at once, and only lines that accuse their own host do."""

from __future__ import annotations

import promql_parser
import pytest

from detector.diagnosis.root.test_live import NOW, ranks, rows
from each_case import each_case
from peerwatch_detector.diagnosis.root.fatal_lines import FatalLineDiagnoser
from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.frame import Series
from peerwatch_detector.reading import promql
from promql_lint import groupings, names, pack_schema
from signature_tables import shipped_signatures

ECC = {"class": "H", "signature": "cuda_ecc"}
STANDS = rows(({}, NOW - 62))


def verdicts(**samples: list[Series]) -> list[Verdict]:
    return list(FatalLineDiagnoser("7").diagnose({"ranks": ranks(), **samples}, NOW))


def written(*whom: tuple[str, str], line: dict[str, str] = ECC, ago: float = 60) -> list[Series]:
    """Return the same line in the logs of some nodes and ranks."""
    return rows(*[({"node": node, "rank": rank} | line, NOW - ago) for node, rank in whom])


def test_a_node_is_named_by_its_own_line_also_where_steps_are_not_known() -> None:
    for known in ({"step": STANDS}, {}):
        (verdict,) = verdicts(log=written(("n5", "11")), **known)
        assert ("n5", 11, "fatal_line") == (verdict.node, verdict.rank, verdict.class_name)
        assert ("hardware", "likely", "isolate") == (
            verdict.domain,
            verdict.confidence,
            verdict.action,
        )
        assert ("critical", NOW - 60) == (verdict.severity, verdict.start_time)
        assert (
            "rank 11 on node n5 wrote a fatal error (cuda ecc): the node has an uncorrectable "
            "memory error"
        ) == verdict.summary


def test_a_line_of_the_kernel_is_one_of_the_node() -> None:
    line = {"class": "H", "signature": "machine_check"}
    (verdict,) = verdicts(kernel=rows(({"node": "n3"} | line, NOW - 30)), step=STANDS)
    assert ("n3", None, "critical") == (verdict.node, verdict.rank, verdict.severity)
    assert verdict.summary.startswith("the kernel log of node n3 has a fatal error (machine check)")


def test_all_ranks_of_a_node_are_one_verdict() -> None:
    (verdict,) = verdicts(log=written(("n5", "10"), ("n5", "11")), step=STANDS)
    assert ("n5", "critical") == (verdict.node, verdict.severity)


def test_many_nodes_with_the_same_line_share_a_cause() -> None:
    line = {"class": "H", "signature": "gpu_lost"}
    everywhere = written(*[(f"n{n}", str(2 * n)) for n in range(8)], line=line)
    (verdict,) = verdicts(log=everywhere, step=STANDS)
    assert ("", "undecided", None) == (verdict.node, verdict.confidence, verdict.severity)
    assert verdict.summary.startswith("what 8 nodes share logged a fatal error (gpu lost)")


def test_a_job_that_goes_on_has_survived_it() -> None:
    (verdict,) = verdicts(log=written(("n5", "11")), step=rows(({}, NOW - 2)))
    assert ("undecided", "inspect", None) == (
        verdict.confidence,
        verdict.action,
        verdict.severity,
    )
    assert verdict.summary.endswith("; the job went on after it")
    # After ten minutes only what the job did not survive stands.
    assert [] == verdicts(log=written(("n5", "11"), ago=1200), step=rows(({}, NOW - 2)))
    assert [] == verdicts(log=written(("n5", "11"), ago=1200))
    (old,) = verdicts(log=written(("n5", "11"), ago=1200), step=rows(({}, NOW - 1199)))
    assert "critical" == old.severity


def test_it_is_not_said_before_it_is_known_whether_the_job_goes_on() -> None:
    assert [] == verdicts(log=written(("n5", "11"), ago=8), step=rows(({}, NOW - 7)))


def test_a_line_belongs_to_the_node_of_its_rank_and_without_one_to_nobody() -> None:
    (verdict,) = verdicts(log=written(("n0", "11")), step=STANDS)
    assert "n5" == verdict.node
    (nobody,) = verdicts(log=written(("n0", "")), step=STANDS)
    assert ("", "undecided") == (nobody.node, nobody.confidence)
    assert "does not say" in nobody.summary


@each_case(
    "signature",
    [
        *(each.id for each in shipped_signatures().signatures if each.cascade),
        *(each.id for each in shipped_signatures().signatures if each.event_class in "DUX"),
        "storage_full",
        "stale_file_handle",
        "hung_task",
        "soft_lockup",
        "of_a_user",
    ],
)
def test_what_does_not_accuse_its_own_host_names_nobody(signature: str) -> None:
    line = {"class": "H", "signature": signature}
    kernel = rows(({"node": "n5"} | line, NOW - 60))
    assert [] == verdicts(log=written(("n5", "11"), line=line), kernel=kernel, step=STANDS)


@pytest.mark.parametrize("name", FatalLineDiagnoser.queries)
def test_queries_ask_for_what_is_published(name: str) -> None:
    parsed = promql_parser.parse(promql.job_query(FatalLineDiagnoser.queries[name], 'a"b'))
    assert [] == [*names(parsed, pack_schema()), *groupings(parsed, pack_schema())]


def test_nothing_that_is_read_makes_no_mistake() -> None:
    odd = rows(({"node": "n5", "rank": "x"} | ECC, float("nan")))
    assert [] == verdicts(log=odd, kernel=odd, step=rows(({}, float("nan"))))
    assert [] == list(FatalLineDiagnoser("7").diagnose({}, NOW))
