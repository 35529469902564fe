"""The job's matrices of pings: who is in them, by which name, and with which share lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from dashboard_queries import panel_queries
from peerwatch_demo.stack.servers import find_program

JOB = Path(__file__).resolve().parents[1] / "dashboards" / "job.json"
ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3", "other": "10.0.0.9"}
MEMBERS = ("n1", "n2", "n3")
# What of 100 pings in a minute is lost, by source, destination and size; all else arrives.
LOST = {("n1", "n2", "large"): 50, ("n3", "n2", "large"): 30, ("n2", "n1", "small"): 10}
ANSWERED_SECONDS = {("n1", "n3"): 0.4}


def queries() -> dict[str, str]:
    variables = {"job_id": "j1", "__range": "10m", "__rate_interval": "1m"}
    return {query.title: query.expr for query in panel_queries(JOB, variables)}


def labels(**values: str) -> str:
    return ",".join(f'{name}="{value}"' for name, value in values.items())


def series() -> list[dict[str, str]]:
    """Return what exporters say for ten minutes; n3 is gone after eight."""
    found = []
    for node, address in ADDRESSES.items():
        alive = "x7 stale" if node == "n3" else "x10"
        found.append(
            (
                f"ping_address_info{{{labels(cluster='c', node=node, address=address)}}}",
                f"1+0{alive}",
            )
        )
        if node in MEMBERS:
            member = labels(cluster="c", job_id="j1", node=node)
            found.append((f"job_node:membership:info{{{member}}}", f"1+0{alive}"))
        for other, peer in ADDRESSES.items():
            for size in ("small", "large") if other != node else ():
                pair = labels(cluster="c", node=node, peer=peer, protocol="udp", size=size)
                lost = LOST.get((node, other, size), 0)
                seconds = ANSWERED_SECONDS.get((node, other), 0.1)
                found += [
                    (f"ping_sent_total{{{pair}}}", f"0+100{alive}"),
                    (f'ping_lost_total{{{pair},direction="to_peer"}}', f"0+{lost}{alive}"),
                    (f"ping_round_trip_seconds_total{{{pair}}}", f"0+{seconds}{alive}"),
                    (
                        f'ping_recent_round_trip_seconds{{{pair},statistic="p99"}}',
                        f"0.001+0{alive}",
                    ),
                ]
    return [{"series": name, "values": values} for name, values in found]


def promtool(
    tmp_path: Path, expr: str, expected: dict[str, float]
) -> subprocess.CompletedProcess[str]:
    samples = [{"labels": name, "value": value} for name, value in expected.items()]
    test = {"expr": expr, "eval_time": "10m", "exp_samples": samples}
    file = tmp_path / "pings.test.yaml"
    group = {"interval": "1m", "input_series": series(), "promql_expr_test": [test]}
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [group]}))
    command = [find_program("promtool"), "test", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def pairs(found: dict[tuple[str, str], float], all_others: float) -> dict[str, float]:
    return {
        "{" + labels(node=node, to=to) + "}": found.get((node, to), all_others)
        for node in MEMBERS
        for to in MEMBERS
        if node != to
    }


@pytest.mark.parametrize(
    ("title", "found", "all_others"),
    [
        ("Small pings lost", {("n2", "n1"): 0.1}, 0),
        ("Large pings lost", {("n1", "n2"): 0.5, ("n3", "n2"): 0.3}, 0),
    ],
)
def test_a_matrix_has_the_pairs_of_the_job_by_name_with_one_that_is_gone(
    tmp_path, title, found, all_others
):
    result = promtool(tmp_path, queries()[title], pairs(found, all_others))

    assert result.returncode == 0, result.stderr + result.stdout


def test_round_trips_are_multiples_of_the_median(tmp_path):
    expr = f"round({queries()['Round trips against the median']}, 0.01)"
    # n2 waited as long for nine answers of ten.
    late = {("n1", "n3"): 4.0, ("n2", "n1"): 1.11}

    result = promtool(tmp_path, expr, pairs(late, 1))

    assert result.returncode == 0, result.stderr + result.stdout


def test_graphs_name_both_nodes(tmp_path):
    lost = queries()["Pings lost by pair"]
    slow = queries()["Round trips that 99 % of the pings kept to"]
    alive = [(node, to) for node in ("n1", "n2") for to in ADDRESSES if node != to]
    shares = {("n1", "n2"): 0.25, ("n2", "n1"): 0.05}

    for expr, values, rest in ((lost, shares, 0.0), (slow, {}, 0.001)):
        expected = {
            "{" + labels(cluster="c", node=node, peer=ADDRESSES[to], to=to) + "}": values.get(
                (node, to), rest
            )
            for node, to in alive
        }
        result = promtool(tmp_path, f"round({expr}, 0.0001)", expected)
        assert result.returncode == 0, result.stderr + result.stdout
