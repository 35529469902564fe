"""The node against its peers, by a server that answers as Prometheus does, and by others."""

from __future__ import annotations

import base64
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from checks_program import Program
from peerwatch_checks.check import Context, Outcome, Skip
from peerwatch_checks.checks.config.peer_config import PeerConfigOptions, peer_config
from peerwatch_checks.prometheus.client import PrometheusError, Server, instant
from peerwatch_checks.prometheus.settings_of_nodes import counted_query
from peerwatch_demo.stack.servers import find_program
from prometheus_answers import serving, vector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN = {
    "gpu.model": "H100",
    "gpu.count": "8",
    "gpu.3.vbios": "96.00",
    "gpu.0.vbios": "97.00",
    "driver.nvidia": "550",
    "cpu.governor": "powersave",
    "kernel.release": "6.8",
}
NODES = {
    "gpu.model": {"H100": 64},
    "gpu.count": {"8": 64},
    "gpu.vbios": {"97.00": 63},
    "driver.nvidia": {"570": 62, "550": 2},
    "cpu.governor": {"performance": 63, "powersave": 1},
    "kernel.release": {"6.9": 40, "6.8": 24},
    "os.release": {"Ubuntu 22.04": 32, "Ubuntu 24.04": 32},
    "module.gdrdrv": {"2.4": 63},
}


class Fake:
    """A server: what it answers, and what it was asked.

    Parameters
    ----------
    own, nodes
        This node's values, and how many nodes have each value.
    """

    def __init__(self, own: dict[str, str], nodes: dict[str, dict[str, int]]) -> None:
        self.own, self.nodes = own, nodes
        self.status, self.body = 200, b""
        self.queries: list[str] = []
        self.authorization = ""
        self.ended = threading.Event()

    def answer(self, query: str) -> bytes:
        self.queries.append(query)
        if self.body:
            return self.body
        if query.startswith("count"):
            rows = [(k, v, n) for k, values in self.nodes.items() for v, n in values.items()]
        else:
            rows = [(k, v, 1) for k, v in self.own.items()]
        return vector(({"key": k, "value": v}, n) for k, v, n in rows)


@pytest.fixture
def fake() -> Fake:
    return Fake(dict(OWN), {key: dict(values) for key, values in NODES.items()})


@pytest.fixture
def url(fake: Fake) -> Iterator[str]:
    with serving(fake) as found:
        yield found


def run(folder: Path, **options: Any) -> dict[str, Outcome]:
    context = Context(PeerConfigOptions(**options), "n1", folder, 60.0)
    return {outcome.device: outcome for outcome in peer_config(context)}


def test_a_node_in_the_minority_is_told_in_what(fake: Fake, url: str, tmp_path: Path) -> None:
    found = run(tmp_path, url=url)

    assert {
        # Rare, and a version.
        "driver.nvidia": ("fail", "low"),
        "gpu.3.vbios": ("fail", "low"),
        # A third of the others have it too.
        "kernel.release": ("warn", None),
        "cpu.governor": ("warn", "low"),
        "module.gdrdrv": ("warn", None),
    } == {name: (each.status, each.severity) for name, each in found.items()}
    assert "driver.nvidia is '550', 62 of 64 nodes have '570'." in found["driver.nvidia"].message
    assert (
        "module.gdrdrv is not there or cannot be read; 63 of 63" in found["module.gdrdrv"].message
    )
    assert 'node_config_info{node="n1"}' == fake.queries[0]
    assert (
        'and on (cluster, node) node_config_info{key="gpu.model",value="H100"}' in fake.queries[1]
    )


def test_a_gpu_that_is_missing_takes_the_node_out(fake: Fake, url: str, tmp_path: Path) -> None:
    fake.own["gpu.count"], fake.nodes["gpu.count"] = "7", {"8": 63, "7": 1}

    found = run(tmp_path, url=url)["gpu.count"]

    assert ("fail", "high") == (found.status, found.severity)


def test_a_node_like_the_others_passes(fake: Fake, url: str, tmp_path: Path) -> None:
    fake.own = {"driver.nvidia": "570", "gpu.count": "8"}
    fake.nodes = {"driver.nvidia": {"570": 8}, "gpu.count": {"8": 8}}

    (found,) = run(tmp_path, url=url, selector='{cluster="c1"}', job_id="j1").values()

    assert ("pass", True) == (found.status, "most of the 8 nodes" in found.message)
    assert 'node_config_info{cluster="c1",node="n1"}' == fake.queries[0]
    assert 'and on (cluster, node) host_job_info{cluster="c1",job_id="j1"}' in fake.queries[1]


def test_without_peers_it_is_skipped(fake: Fake, url: str, tmp_path: Path) -> None:
    with pytest.raises(Skip, match="No Prometheus is set"):
        run(tmp_path)
    fake.nodes = {"gpu.model": {"H100": 2}}
    with pytest.raises(Skip, match="There are 2 nodes with this GPU"):
        run(tmp_path, url=url)
    fake.own = {}
    with pytest.raises(Skip, match="has no node_config_info of 'n1'"):
        run(tmp_path, url=url)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"<html>Sign in</html>", "does not answer like Prometheus: '<html>Sign in"),
        (200, b'{"status":"success","data":{"resu', "does not answer like Prometheus"),
        (200, b"[" * 100_000, "does not answer like Prometheus"),
        (200, b'{"data":{"resultType":"vector","result":[{"metric":7}]}}', "does not answer"),
        (200, b'{"data":{"resultType":"matrix","result":[]}}', "does not answer"),
        (422, b'{"status":"error","error":"too many samples"}', "answered 422: too many samples"),
        (401, b"<html>", "answered 401: Unauthorized; <html>"),
        (200, b"slow", "timed out"),
    ],
    ids=["HTML", "half", "nested", "other", "matrix", "refused", "not let in", "slow"],
)
def test_a_bad_server_costs_this_comparison_only(
    status: int, body: bytes, reason: str, fake: Fake, url: str, tmp_path: Path
) -> None:
    fake.status, fake.body = status, body

    (found,) = run(tmp_path, url=url, timeout_seconds=1.0 if body == b"slow" else 20.0).values()

    assert "error" == found.status
    assert reason in found.message


def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    (found,) = run(tmp_path, url="http://127.0.0.1:1").values()

    assert ("error", True) == (found.status, "Connection refused" in found.message)


def test_an_answer_is_read_to_a_limit(fake: Fake, url: str) -> None:
    fake.body = b" " * 5_000_000

    with pytest.raises(PrometheusError, match="more than 1000000 bytes; ask for fewer nodes"):
        instant(Server(url), "up", most_bytes=1_000_000)


def test_it_is_let_in_by_a_password_or_a_token(fake: Fake, url: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    # As editors of Windows write it.
    secret.write_text("opens\n", encoding="utf-8-sig")

    run(tmp_path, url=url, username="peer", password_file=secret)
    assert f"Basic {base64.b64encode(b'peer:opens').decode()}" == fake.authorization
    run(tmp_path, url=url, bearer_token_file=secret)
    assert "Bearer opens" == fake.authorization
    (found,) = run(tmp_path, url=url, bearer_token_file=tmp_path / "none").values()
    assert "error" == found.status


@pytest.mark.parametrize("selector", ['cluster="c1"} or vector(1', "cluster", 'a="b" c="d"'])
def test_a_selector_that_is_none_is_a_mistake(selector: str) -> None:
    with pytest.raises(ValueError, match="must be matchers of labels"):
        PeerConfigOptions(selector=selector)


def test_the_flags_win_over_the_settings(fake: Fake, url: str, tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.settings["checks"] = {"peer_config": {"url": "http://127.0.0.1:1", "job_id": "j0"}}

    status, records, _err = program.run("peer_config", "--prometheus", url, "--job-id", "j1")

    assert (2, 5) == (status, len(records))
    assert 'job_id="j1"' in fake.queries[1]
    assert 3 == program.run("peer_config", "--prometheus", "ftp://x")[0]
    assert 3 == program.run("peer_config", "--selector", "x")[0]
    assert 3 == program.run("pair", "--prometheus", url)[0]


@pytest.mark.parametrize("job_id", ["", "j1"])
def test_the_server_counts_nodes_and_mixes_no_models(job_id: str, tmp_path: Path) -> None:
    series = []
    for node, model, driver in (
        ("n1", "H100", "550"),
        ("n2", "H100", "570"),
        ("n3", "H100", "570"),
        ("n4", "A100", "535"),
    ):
        about = {"gpu.model": model, "driver.nvidia": driver}
        # Scraped twice, it is still one node.
        series += [
            f'node_config_info{{instance="{i}",node="{node}",key="{key}",value="{value}"}}'
            for key, value in about.items()
            for i in "ab"
        ]
    series += [f'host_job_info{{node="{node}",job_id="j1"}}' for node in ("n1", "n2", "n3")]
    expected = {"driver.nvidia": {"550": 1, "570": 2}, "gpu.model": {"H100": 3}}
    test = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "input_series": [{"series": each, "values": "1"} for each in series],
                "promql_expr_test": [
                    {
                        "expr": counted_query("", job_id, {"gpu.model": "H100"}),
                        "eval_time": "0m",
                        "exp_samples": [
                            {"labels": f'{{key="{key}",value="{value}"}}', "value": count}
                            for key, values in expected.items()
                            for value, count in values.items()
                        ],
                    }
                ],
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
