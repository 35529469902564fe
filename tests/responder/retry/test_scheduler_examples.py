"""The examples for schedulers act on what ``advise`` ends with."""

from pathlib import Path

import yaml

from peerwatch_responder.retry.answer import EXIT_STATUS

DOCS = Path(__file__).parents[3] / "docs"
# What its wrapper makes of 0, which Kubernetes would take for a success.
START_AGAIN = 30


def test_the_pod_failure_policy_knows_every_advice():
    job = yaml.safe_load((DOCS / "kubernetes" / "retry-job.yaml").read_text())
    rules = job["spec"]["podFailurePolicy"]["rules"]
    actions = {
        status: rule["action"]
        for rule in rules
        for status in rule.get("onExitCodes", {"values": []})["values"]
    }
    expected = {
        START_AGAIN if status == 0 else status: (
            "FailJob" if kind in {"do_not_retry", "ask_user"} else "Count"
        )
        for kind, status in EXIT_STATUS.items()
    }
    assert actions == expected
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "train"
    assert f'[ "$advice" -eq 0 ] && exit {START_AGAIN}' in container["args"][0]


def test_the_epilog_knows_every_advice_that_starts_a_job_again():
    script = (DOCS / "slurm" / "retry-epilog.sh").read_text()
    for kind, status in EXIT_STATUS.items():
        starts = f"    {status})" in script
        assert starts == (kind not in {"do_not_retry", "ask_user"})
