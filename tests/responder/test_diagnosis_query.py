"""What the responder asks of Prometheus is what the detector publishes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import yaml

from peerwatch_demo.stack.servers import find_program
from peerwatch_detector.service.diagnosis_specs import DIAGNOSIS_SPECS
from peerwatch_responder.run import servers
from peerwatch_responder.run.servers import DIAGNOSES
from peerwatch_responder.settings.config import ServerConfig

if TYPE_CHECKING:
    from pathlib import Path

LABELS = {spec.name: spec.labels for spec in DIAGNOSIS_SPECS}


def series(name: str, **values: str) -> str:
    """Return a series with just the labels that the detector gives it."""
    pairs = ",".join(f'{label}="{values.get(label, "")}"' for label in LABELS[name])
    return f'{name}{{cluster="c1",{pairs}}}'


def test_the_verdicts_of_what_jobs_failed_of_are_found(tmp_path: Path) -> None:
    verdicts = [
        # What the job failed of; one that is no root; one that is not sure enough.
        {"job_id": "7", "node": "n1", "class": "gpu_lost", "confidence": "sure", "root": "1"},
        {"job_id": "7", "node": "n2", "class": "hang", "confidence": "sure"},
        {"job_id": "8", "node": "n3", "class": "hang", "confidence": "undecided", "root": "1"},
    ]
    names = ("peerwatch_diagnosis", "peerwatch_diagnosis_info")
    given = [
        {"series": series(name, action="isolate", **verdict), "values": "1x10"}
        for verdict in verdicts
        for name in names
    ]
    found = {"labels": series(names[0], action="isolate", **verdicts[0]), "value": 1}
    case = {"expr": DIAGNOSES, "eval_time": "5m", "exp_samples": [found]}
    file = tmp_path / "query.test.yaml"
    test = {"interval": "1m", "input_series": given, "promql_expr_test": [case]}
    file.write_text(yaml.safe_dump({"tests": [test]}))

    done = subprocess.run(
        [find_program("promtool"), "test", "rules", str(file)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_all_that_is_advised_for_a_node_is_kept(monkeypatch) -> None:
    def rooted(action: str, node: str = "n1") -> dict[str, object]:
        labels = {"cluster": "c1", "job_id": "7", "node": node, "action": action}
        return {"metric": labels, "value": [1, "1"]}

    # Whichever Prometheus has last.
    results = [rooted("isolate"), rooted("ask"), rooted("drain", "n2")]
    monkeypatch.setattr(servers, "get_json", lambda *_: {"data": {"result": results}})
    given = servers.advice(ServerConfig(url="http://prometheus"))
    assert given == {
        ("c1", "7", "n1"): {"isolate", "ask"},
        ("c1", "7", "n2"): {"drain"},
    }
