"""Values against those of other nodes, by a server that answers as Prometheus does."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
import yaml

from checks_faults import UNHURRIED
from checks_program import Program
from peerwatch_checks.check import Context, Options, Usual
from peerwatch_checks.evaluation import Reference, reference_for
from peerwatch_checks.prometheus.client import Server
from peerwatch_checks.prometheus.values_of_nodes import read_usual, usual_query
from peerwatch_demo.stack.servers import find_program
from prometheus_answers import serving, vector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 86_400
HARDWARE = {"gpu": "H100", "cpu": "EPYC"}


class Fake:
    """A server with what is usual for copying memory.

    Parameters
    ----------
    count
        On how many nodes.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.status = 200
        self.queries: list[str] = []
        self.authorization = ""
        self.ended = threading.Event()

    def answer(self, query: str) -> bytes:
        self.queries.append(query)
        about = {"check": "memory_copy", "device": "", "unit": "GB/s"}
        # More than any machine copies.
        row = {"count": float(self.count), "median": 1e9, "deviation": 1.0}
        return vector((about | {"statistic": name}, value) for name, value in row.items())


@pytest.fixture
def fake() -> Fake:
    return Fake(8)


@pytest.fixture
def url(fake: Fake) -> Iterator[str]:
    with serving(fake) as found:
        yield found


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.settings["checks"] = {"memory_copy": {"size_bytes": 2**20, "floor": 1e-6}}
    return program


def test_a_node_that_is_slower_than_its_peers_in_prometheus_fails(
    fake: Fake, url: str, program: Program
) -> None:
    slow = {"PYTHONPATH": UNHURRIED, "INJECTED_FAULT": "slow memory copy"}

    status, (record,), _err = program.run("memory_copy", "--prometheus", url, **slow)

    assert (2, "fail", 1e9) == (status, record.status, record.expected)
    assert "the median of 8 peers in Prometheus is 1e+09" in record.message
    # Of both attempts, and of all checks.
    (query,) = fake.queries
    assert 'peerwatch_check_value{check=~"memory_copy",node!="n1"' in query


def test_too_few_peers_in_prometheus_leave_it_to_the_floor(
    fake: Fake, url: str, program: Program
) -> None:
    fake.count = 3

    status, (record,), _err = program.run("memory_copy", "--prometheus", url)

    assert (0, "pass", 1e-6) == (status, record.status, record.expected)


def test_a_server_without_an_answer_costs_the_comparison_only(
    fake: Fake, url: str, program: Program
) -> None:
    fake.status = 503

    status, (record,), err = program.run("memory_copy", "--prometheus", url)

    assert (0, "pass", 1e-6) == (status, record.status, record.expected)
    assert f"values are not compared with those of other nodes: {url} answered 503" in err


class Rules(Fake):
    """A server with the rules' count of nodes that fail the same check."""

    def answer(self, query: str) -> bytes:
        self.queries.append(query)
        return vector([({"check": "fails", "severity": "high"}, float(self.count))][: self.count])


@pytest.mark.parametrize(
    ("count", "answer", "status", "says"),
    [
        (12, 200, 0, "fails failed on 12 nodes within an hour: the last update"),
        (0, 200, 2, ""),
        (12, 503, 2, "not known whether other nodes fail too"),
    ],
    ids=["many", "alone", "no answer"],
)
def test_no_node_is_drained_for_what_many_fail_at_once(
    count: int, answer: int, status: int, says: str, program: Program
) -> None:
    rules = Rules(count)
    rules.status = answer
    with serving(rules) as url:
        arguments = ("fails", "--prometheus", url, "--selector", 'cluster="c1"')
        found, records, err = program.run(*arguments, "--mode", "epilog")

    assert (status, "fail") == (found, records[0].status)
    assert says in err
    if answer == 200:
        assert ['cluster:check_failed_nodes:count{cluster="c1",check=~"fails"}'] == rules.queries


def test_nobody_is_asked_where_nothing_is_measured(fake: Fake, url: str, program: Program) -> None:
    program.run("filesystem_space", "--prometheus", url)

    assert [] == fake.queries


@pytest.mark.parametrize(
    ("usual", "expected"),
    [
        (Usual(4, 100.0, 1.0, "GB/s"), (100.0, 90.0)),
        (Usual(4, 100.0, 10.0, "GB/s"), (100.0, 100.0 - 3 * 14.826)),
        # In another unit, or too few: the peers of the files.
        (Usual(4, 100.0, 1.0, "MB/s"), (50.0, 45.0)),
        (Usual(3, 100.0, 1.0, "GB/s"), (50.0, 45.0)),
    ],
    ids=["enough", "scattered", "unit", "few"],
)
def test_prometheus_wins_where_it_has_enough(
    usual: Usual, expected: tuple[float, float], tmp_path: Path
) -> None:
    peers = {"gpu 0": (50.0,) * 3}
    context = Context(Options(), "n1", tmp_path, 60.0, peers=peers, usual={"gpu 0": usual})

    found = reference_for(context, "gpu 0", "GB/s", 0.1, others=[50.0], floor=1.0)

    assert isinstance(found, Reference)
    assert expected == pytest.approx((found.expected, found.limit))


def test_of_two_units_that_of_most_nodes_counts() -> None:
    class TwoUnits(Fake):
        def answer(self, query: str) -> bytes:
            rows = []
            for unit, count in (("GB/s", 9.0), ("MB/s", 2.0)):
                about = {"check": "copy", "device": "d", "unit": unit}
                found = {"count": count, "median": 2.0, "deviation": 0.0}
                rows += [(about | {"statistic": name}, value) for name, value in found.items()]
            # What lacks a statistic is none.
            return vector([*rows, ({"check": "other", "statistic": "count"}, 4.0)])

    with serving(TwoUnits(0)) as url:
        found = read_usual(Server(url), "any")

    assert {"copy": {"d": Usual(9, 2.0, 0.0, "GB/s")}} == found


def series_of(node: str, value: float, *, age: float = 0, status: int = 0, **more: str) -> dict:
    """Return the series of one node's check, by name and labels."""
    about = {"cluster": "c1", "node": node, "check": "copy", "device": "gpu 0", "scope": "host"}
    about |= {"severity": "low"}
    models = {"unit": "GB/s", "gpu_model": "H100", "cpu_model": "EPYC"} | more

    def name(metric: str, **labels: str) -> str:
        inside = ",".join(f'{label}="{text}"' for label, text in (about | labels).items())
        return f"{metric}{{{inside}}}"

    return {
        name("peerwatch_check_value", **models): value,
        name("peerwatch_check_status"): status,
        # The test's time is that of its evaluation.
        name("peerwatch_check_last_run_timestamp_seconds"): 10 * DAY - age,
    }


@pytest.mark.parametrize("job_id", ["", "j1"])
def test_the_server_sums_up_what_nodes_of_the_same_hardware_measured(
    job_id: str, tmp_path: Path
) -> None:
    series = {
        # Itself.
        **series_of("n1", 1.0),
        **series_of("n2", 10.0),
        **series_of("n3", 12.0, status=2),
        # Measured, and not yet compared with anything.
        **series_of("n4", 13.0, status=4, age=6 * DAY),
        **series_of("n5", 99.0, gpu_model="A100"),
        **series_of("n6", 99.0, cpu_model="Xeon"),
        **series_of("n7", 99.0, age=8 * DAY),
        **series_of("n8", 99.0, status=3),
        **{f'host_job_info{{cluster="c1",node="n{i}",job_id="j1"}}': 1 for i in (1, 2, 3)},
    }
    # Without n4 in the job; scraped twice, a node is still one.
    twice = {each.replace("{", '{instance="b",'): value for each, value in series.items()}
    expected = (2, 11.0, 1.0) if job_id else (3, 12.0, 1.0)
    labels = 'check="copy",device="gpu 0",unit="GB/s"'
    names = ("count", "median", "deviation")
    samples = [
        {"labels": f'{{{labels},statistic="{name}"}}', "value": value}
        for name, value in zip(names, expected, strict=True)
    ]
    query = usual_query("n1", ["copy", "other"], HARDWARE, 'cluster="c1"', job_id)
    test = {
        "evaluation_interval": "1d",
        "tests": [
            {
                "interval": "1d",
                "input_series": [
                    {"series": each, "values": f"{value}x10"}
                    for each, value in (series | twice).items()
                ],
                "promql_expr_test": [{"expr": query, "eval_time": "10d", "exp_samples": samples}],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))

    done = subprocess.run(
        [find_program("promtool"), "test", "rules", str(tmp_path / "test.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_stays_a_name_in_the_query() -> None:
    query = usual_query("n1", ["a|b", 'c"'], {}, "", "")

    assert 'check=~"a\\\\|b|c\\"",node!="n1",gpu_model="",cpu_model=""' in query
