from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from detector import naive
from detector.fakes import a_finding
from late import late
from peerwatch_detector.backtest.cases import Truth
from peerwatch_detector.backtest.evaluation import (
    CaseEvaluation,
    Guess,
    evaluate,
    evaluate_case,
    guesses,
    lacks_truth,
    measure,
    poisson_bound,
    size_group,
    summarize,
    wilson,
)
from peerwatch_detector.backtest.run import CaseResult
from peerwatch_detector.backtest.table import report

PICTURE = "peerwatch_detector.backtest.picture"
draw, figure_of = late(PICTURE, "draw"), late(PICTURE, "figure_of")
NODES = ("a", "b", "c", "d")
FAULT = Truth("slow_nic", ("b",), 100.0, 400.0)
HEALTHY = Truth(None, (), None, None)


def result(truth: Truth | None, name: str = "one", nodes: tuple[str, ...] = NODES) -> CaseResult:
    return CaseResult(Path("cases") / name, name, nodes, 864.0, truth)


def evaluated(truth: Truth, *findings: tuple[str, float]) -> CaseEvaluation:
    return evaluate_case(result(truth), [Guess(node, raised) for node, raised in findings])


@pytest.mark.parametrize(
    ("findings", "found", "false"),
    [
        ([], False, 0),
        ([("b", 150)], True, 0),
        ([("b", 100)], True, 0),
        ([("a", 150)], False, 1),
        # The page went to the wrong node: naming the right one next does not mend it.
        ([("a", 150), ("b", 160)], False, 1),
        ([("b", 150), ("a", 160)], True, 1),
        ([("b", 99)], False, 1),
        ([("a", 50), ("b", 150)], True, 1),
        ([("b", 150), ("b", 300)], True, 0),
    ],
)
def test_an_instance_is_found_by_its_first_finding_only(
    findings: list[tuple[str, float]], found: bool, false: int
) -> None:
    verdict = evaluated(FAULT, *findings)
    assert (found, false) == (verdict.found, verdict.false_findings)


def test_delay_counts_from_the_onset_and_lead_to_the_halt() -> None:
    verdict = evaluated(FAULT, ("b", 150.0), ("b", 300.0))
    assert (50.0, 250.0) == (verdict.delay_seconds, verdict.lead_seconds)
    late = evaluated(FAULT, ("b", 410.0))
    assert -10.0 == late.lead_seconds
    going_on = Truth("slow_nic", ("b",), 100.0, None)
    assert None is evaluated(going_on, ("b", 150.0)).lead_seconds
    missed = evaluated(FAULT)
    assert (None, None) == (missed.delay_seconds, missed.lead_seconds)


def test_every_finding_in_a_healthy_case_is_false() -> None:
    verdict = evaluated(HEALTHY, ("a", 10.0), ("b", 20.0))
    assert (None, False, 2, None) == (
        verdict.fault,
        verdict.found,
        verdict.false_findings,
        verdict.delay_seconds,
    )


def test_either_of_two_faulty_nodes_is_right() -> None:
    both = Truth("slow_nic", ("b", "d"), 100.0, None)
    for findings in ([("d", 150.0)], [("b", 150.0), ("d", 151.0)]):
        verdict = evaluated(both, *findings)
        assert (True, 0) == (verdict.found, verdict.false_findings)


def test_the_counts_add_up() -> None:
    verdicts = [
        evaluated(FAULT, ("b", 150.0)),
        evaluated(FAULT, ("b", 200.0)),
        evaluated(FAULT, ("a", 200.0)),
        evaluated(FAULT),
        evaluated(HEALTHY, ("a", 1.0), ("c", 2.0)),
    ]
    measures = measure(verdicts)
    assert (5, 4, 2, 3, 2) == (
        measures.cases,
        measures.faults,
        measures.true_positives,
        measures.false_positives,
        measures.false_negatives,
    )
    assert (2 / 5, 2 / 4) == (measures.precision.value, measures.recall.value)
    # F1 = 2 P R / (P + R).
    np.testing.assert_allclose(2 * 0.4 * 0.5 / 0.9, measures.f1.value)
    assert measures.f1.low < measures.f1.value < measures.f1.high
    assert (75.0, 95.0) == (measures.delay_median_seconds, measures.delay_p90_seconds)
    assert 225.0 == measures.lead_median_seconds
    np.testing.assert_allclose(5 * 4 * 864 / 86400, measures.node_days)
    np.testing.assert_allclose(3 / 0.2, measures.false_findings_per_node_day)


def test_nothing_found_is_no_precision_and_nothing_faulty_no_recall() -> None:
    silent = measure([evaluated(FAULT)])
    assert (None, 0.0, 0.0) == (silent.precision.value, silent.recall.value, silent.f1.value)
    clean = measure([evaluated(HEALTHY)])
    assert (None, None, None, 0.0) == (
        clean.precision.value,
        clean.recall.value,
        clean.f1.value,
        clean.false_findings_per_node_day,
    )


@pytest.mark.parametrize(("hits", "tries"), [(0, 10), (10, 10), (7, 9), (132, 150), (1, 1)])
def test_wilson_is_where_the_score_test_turns(hits: int, tries: int) -> None:
    share = wilson(hits, tries)
    low, high = naive.wilson(hits, tries)
    np.testing.assert_allclose([low, high], [share.low, share.high], atol=1e-4)
    assert hits / tries == share.value


def test_wilson_matches_the_published_recall_of_minder() -> None:
    # 0.883 of 150 instances: 0.82 to 0.93.
    share = wilson(132, 150)
    assert (0.82, 0.92) == (round(share.low, 2), round(share.high, 2))


def test_f1_is_resampled_by_case_and_repeats() -> None:
    verdicts = [evaluated(FAULT, ("b", 150.0))] * 12 + [evaluated(FAULT)] * 4
    first, again = measure(verdicts), measure(verdicts)
    assert first.f1 == again.f1
    low, high = naive.bootstrap_f1([(1, 0, 1)] * 12 + [(0, 0, 1)] * 4, 3000)
    np.testing.assert_allclose([low, high], [first.f1.low, first.f1.high], atol=0.03)
    certain = measure([evaluated(FAULT, ("b", 150.0))] * 5)
    assert (1.0, 1.0) == (certain.f1.low, certain.f1.high)


def test_groups_are_by_fault_and_by_job_size() -> None:
    other = Truth("ecc_error", ("a",), 10.0, None)
    results = [result(FAULT), result(HEALTHY), result(other, nodes=tuple("abcdefghij"))]
    flagged = [[a_finding("b", raised=150.0)], [], [a_finding("c", raised=20.0)]]
    evaluation = evaluate(results, flagged)
    assert ["ecc_error", "healthy", "slow_nic"] == list(evaluation.by_fault)
    assert ["1-4", "9-16"] == list(evaluation.by_job_size)
    assert (1, 0) == (
        evaluation.by_fault["slow_nic"].true_positives,
        evaluation.by_fault["ecc_error"].true_positives,
    )
    assert (1, 1) == (
        evaluation.by_job_size["9-16"].false_positives,
        evaluation.overall.false_positives,
    )


def test_job_sizes_fall_into_one_group_each() -> None:
    sizes = [1, 4, 5, 16, 17, 64, 65, 1024, 1025]
    expected = ["1-4", "1-4", "5-8", "9-16", "17-32", "33-64", "65-256", "257-1024", "1025+"]
    assert expected == [size_group(size) for size in sizes]


def test_a_case_without_truth_is_refused_by_name() -> None:
    assert "cases/one/case.json: has no truth" in lacks_truth(result(None))
    assert "no nodes or no onset" in lacks_truth(result(Truth("x", (), 5.0, None)))
    assert "no nodes or no onset" in lacks_truth(result(Truth("x", ("a",), None, None)))
    assert "" == lacks_truth(result(FAULT)) == lacks_truth(result(HEALTHY))


def test_references_guess_at_the_onset_and_leave_healthy_jobs_alone() -> None:
    results = [result(FAULT, str(index)) for index in range(300)] + [result(HEALTHY)]
    made = guesses(results)
    assert made == guesses(results)
    assert {("a", 100.0)} == {
        (finding.node, finding.raised) for (finding,) in made["first node"][:-1]
    }
    drawn = [finding.node for (finding,) in made["random node"][:-1]]
    assert set(NODES) == set(drawn)
    assert 45 < drawn.count("b") < 105
    assert [] == made["random node"][-1] == made["first node"][-1]


def two_methods() -> dict[str, object]:
    results = [result(FAULT, "x"), result(FAULT, "y"), result(HEALTHY, "z")]
    good = [[Guess("b", 150.0)], [Guess("b", 180.0)], []]
    bad = [[Guess("a", 150.0)], [], [Guess("a", 180.0)]]
    return {"good": evaluate(results, good), "bad & ugly": evaluate(results, bad)}


def test_the_table_shows_the_methods_side_by_side() -> None:
    lines = report(two_methods()).splitlines()
    assert "3 cases, 2 with a fault, 0.12 node-days" == lines[0]
    assert max(map(len, lines)) <= 120
    by_name = {line.split("  ")[0]: line for line in lines}
    assert "good 2 0 0 1.00 (.34-1) 1.00 (.34-1) 1.00 (1-1)" in " ".join(by_name["good"].split())
    assert "bad & ugly 0 2 2 0.00" in " ".join(by_name["bad & ugly"].split())
    assert ["slow_nic", "2", "2/2", "65", "s", "0/2", "1", "false"] == by_name["slow_nic"].split()
    assert ["healthy", "1", "clean", "1", "false"] == by_name["healthy"].split()


def test_the_picture_is_svg_with_every_method_and_fault() -> None:
    root = ElementTree.fromstring(draw(two_methods()))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"good", "bad & ugly", "precision", "slow_nic (2)"} <= set(texts)
    assert draw(two_methods()) == draw(two_methods())


def test_the_picture_shows_how_soon_faults_are_flagged() -> None:
    *_, delays = figure_of(two_methods()).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in delays.lines}
    # Both faults are flagged by the one, none by the other.
    assert [[0, 0], [50, 0.5], [80, 1], [720, 1]] == lines["good"]
    assert [[0, 0], [720, 0]] == lines["bad & ugly"]


def test_the_picture_shows_shares_with_their_intervals() -> None:
    evaluations = two_methods()
    rightness, faults, _ = figure_of(evaluations).axes
    assert ["precision", "recall", "F1"] == [
        text.get_text() for text in rightness.get_yticklabels()
    ]
    assert ["slow_nic (2)"] == [text.get_text() for text in faults.get_yticklabels()]
    overall = evaluations["good"].overall
    good = rightness.containers[0]
    points, _, (intervals,) = good.lines
    assert "good" == good.get_label()
    assert [1.0, 1.0, 1.0] == points.get_xdata().tolist()
    ends = [segment[:, 0].tolist() for segment in intervals.get_segments()]
    shares = (overall.precision, overall.recall, overall.f1)
    np.testing.assert_allclose([[share.low, share.high] for share in shares], ends)


def test_healthy_cases_alone_make_a_picture_without_faults() -> None:
    only = [result(HEALTHY, "x")]
    figure = figure_of({"calm": evaluate(only, [[]])})
    assert 2 == len(figure.axes)
    assert [] == list(figure.axes[-1].lines)


@pytest.mark.parametrize(
    ("count", "bound"), [(0, 2.996), (1, 4.744), (4, 9.154), (10, 16.962), (100, 118.079)]
)
def test_the_poisson_bound_is_that_of_the_tables(count: int, bound: float) -> None:
    assert pytest.approx(bound, abs=1e-3) == poisson_bound(count)


def test_the_rate_of_false_findings_comes_with_its_bound() -> None:
    clean = measure([evaluated(HEALTHY)])
    np.testing.assert_allclose(2.9957 / clean.node_days, clean.false_per_node_day_bound, rtol=1e-4)
    assert "0 (<" in report({"peerwatch": summarize([evaluated(HEALTHY)])})


@pytest.mark.parametrize(("named", "right"), [("3", True), ("4", False), ("", False)])
def test_the_gpu_counts_where_it_is_known(named: str, right: bool) -> None:
    truth = Truth("gsp_error", ("b",), 100.0, None, ("3",))
    finding = Guess("b", 150.0, named)
    verdict = evaluate_case(result(truth), [finding])
    assert right is verdict.right_gpu
    assert float(right) == measure([verdict]).right_gpu.value
    assert None is evaluate_case(result(truth), []).right_gpu
    assert None is evaluated(FAULT, ("b", 150.0)).right_gpu
    assert None is measure([evaluated(FAULT, ("b", 150.0))]).right_gpu.value
