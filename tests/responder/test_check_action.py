"""Check first, take out only what fails: a check that says nothing takes nothing out."""

from __future__ import annotations

import dataclasses
import sys
import time

import pytest
import yaml

from peerwatch_responder.action import PassedError, RejectedError, Target, registered_actions
from peerwatch_responder.actions.check.check import Check, CheckOptions
from peerwatch_responder.policy.limit_guards import nodes_of_last_hour
from peerwatch_responder.run import servers
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.load import load_settings
from response_cases import NOW, alert, response, state

TARGET = Target("k1", "", "n1", "4711", "peerwatch: x action=k1")


def check(*command, seconds=60.0):
    (step,) = Check(CheckOptions(command=command, timeout_seconds=seconds)).steps(TARGET)
    assert step.inspect().status == "open"
    return step


def python(source, *arguments, **options):
    return check(sys.executable, "-c", source, *arguments, **options)


FAILS = """
import json, sys
found = [("pass", "mounts"), ("fail", "memory_copy"), *[("fail", "x")] * 3]
for n, (status, name) in enumerate(found):
    print(json.dumps({"check": name, "status": status, "message": f"message {n}"}))
print("no record")
sys.exit(2)
"""


def test_a_node_that_fails_is_answered_and_what_failed_is_told():
    text = python(FAILS).do({})
    assert text == "n1 fails: memory_copy: message 1; x: message 2; x: message 3 and 1 more"
    assert python("import sys; sys.exit('too\\nslow') if 0 else sys.exit(2)").do({}) == "n1 fails: "


@pytest.mark.parametrize("status", [0, 1])
def test_a_node_that_passes_is_left_in_use(status):
    with pytest.raises(PassedError, match="n1 passes its checks"):
        python(f"raise SystemExit({status})").do({})


@pytest.mark.parametrize("status", [3, 4, 127, 255])
def test_a_check_that_is_broken_takes_nothing_out(status):
    with pytest.raises(RejectedError, match=f"did not work: status {status} why"):
        python(f"import sys; sys.stderr.write('why'); sys.exit({status})").do({})


def test_a_check_that_hangs_is_ended_with_all_that_it_started():
    source = "import os, time; os.fork(); time.sleep(600)"
    began = time.monotonic()
    with pytest.raises(RejectedError, match=r"it did not end within 0\.5 s"):
        python(source, seconds=0.5).do({})
    assert time.monotonic() - began < 300


def test_a_check_that_is_not_there_takes_nothing_out():
    with pytest.raises(RejectedError, match="/nowhere/ssh: No such file"):
        check("/nowhere/ssh", "{node}").do({})


def test_node_and_job_are_words_of_the_command():
    source = "import sys; print(sys.argv[1:], file=sys.stderr); sys.exit(2)"
    assert python(source, "--on={node}", "{job_id}").do({}).endswith("['--on=n1', '4711']")


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a b", "../n1", "n1;x", "", "n" * 300, "{job_id}"]
)
def test_a_name_that_is_no_name_never_reaches_a_command(name):
    target = dataclasses.replace(TARGET, node=name)
    (step,) = Check(CheckOptions(command=("true", "{node}"))).steps(target)
    with pytest.raises(RejectedError, match="no name for a command line"):
        step.do({})


def test_its_settings_are_checked(tmp_path):
    assert registered_actions()["check"].takes_out is False
    path = tmp_path / "responder.yaml"
    command = ["ssh", "{node}", "peerwatch-check", "light", "--json"]
    path.write_text(yaml.safe_dump({"actions": {"check": {"command": command}}}))
    assert load_settings(path).take_out == frozenset()


DRIVER = """
import json, sys
order = json.load(sys.stdin)
with open({told!r}, "a") as file:
    file.write(order["want"] + " ")
print(json.dumps({{"outcome": "done"}}))
"""


@pytest.mark.parametrize(
    ("status", "ends", "orders"),
    [
        (2, "done", "pause replace "),
        (0, "passed", "pause resume "),
        (1, "passed", "pause resume "),
        # Paused, and nobody knows what of it: a person.
        (3, "stuck", "pause "),
    ],
)
def test_paused_checked_and_replaced_or_resumed(tmp_path, monkeypatch, status, ends, orders):
    """As MegaScale's driver: pause, check, replace what fails; else resume."""
    told, path = tmp_path / "told", tmp_path / "responder.yaml"
    command = [sys.executable, "-c", DRIVER.format(told=str(told))]
    order = {"type": "driver_command", "command": command}
    checks = [sys.executable, "-c", f"raise SystemExit({status})"]
    content = {
        "dry_run": False,
        "alertmanager": {"url": "http://alertmanager"},
        "policy": {
            "rules": [{"name": "r", "match": {"severity": "critical"},
                       "do": ["pause", "check", "replace"]}]
        },
        "actions": {
            "pause": {**order, "want": "pause", "undo": "resume"},
            "replace": {**order, "want": "replace"},
            "check": {"command": checks},
        },
    }  # fmt: skip
    path.write_text(yaml.safe_dump(content))
    ours = Responder(load_settings(path), Books(Unwritten(lambda: NOW)), lambda: NOW)
    fault = alert("n1", "j1")
    monkeypatch.setattr(servers, "firing", lambda _: frozenset([fault.fingerprint]))
    ours.receive((fault,))
    ours.cycle()
    ours.join(300)
    (found,) = ours.state.responses.values()
    assert (found.status, told.read_text()) == (ends, orders)
    if ends == "passed":
        assert "n1 passes its checks" in found.text
        assert not found.is_out


def test_a_node_that_passed_uses_up_no_budget():
    passed, done = response("n1", status="passed", ago=60), response("n2", ago=60)
    assert nodes_of_last_hour(state(passed, done), NOW) == {("", "n2")}
