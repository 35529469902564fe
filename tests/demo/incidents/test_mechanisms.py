"""The mechanisms of incidents: what their files must hold, and what is refused."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from peerwatch_common.errors import ConfigError
from peerwatch_demo.incidents.hosts import draw_hosts
from peerwatch_demo.incidents.lines import read_line
from peerwatch_demo.incidents.mechanism import Mechanism, load_mechanisms

MECHANISM = """
broken:
  title: Something breaks
  source: nowhere
  part: development
  label: {domain: hardware, symptom: disk, isolate: culprit}
  story:
    - {at: 1, where: culprit, xid: 79}
"""


@cache
def shipped() -> tuple[Mechanism, ...]:
    return load_mechanisms()


def test_there_are_many_and_at_least_a_third_is_kept_for_validation() -> None:
    parts = Counter(mechanism.part for mechanism in shipped())

    assert parts.total() >= 90
    assert parts["validation"] * 3 >= parts.total()


def test_each_has_a_source_and_hosts_that_its_jobs_have() -> None:
    for mechanism in shipped():
        hosts = draw_hosts(Random(1), mechanism.nodes, mechanism.roles)
        label = mechanism.label
        roles = {*label.isolate, *label.may_isolate, *label.named}

        assert mechanism.source, mechanism.name
        assert all(hosts.select(role, Random(1)) for role in roles), mechanism.name
        # Healthy hosts are never at fault: who isolates all is wrong in every mechanism.
        assert not {"all", "others", "outside"} & {*label.isolate, *label.may_isolate}


def test_whoever_is_to_be_isolated_can_be_known() -> None:
    for mechanism in shipped():
        if mechanism.label.isolate:
            told = {what for line in mechanism.story for what in line.tells}

            assert "host" in told, mechanism.name


def test_a_fan_out_is_inserted_for_its_role_and_later() -> None:
    (lost,) = (each for each in shipped() if each.name == "gpu_off_the_bus")
    complaints = [line for line in lost.story if line.peer == "culprit"]

    assert [(3.5, 28.0)] == [line.at for line in complaints]
    assert ["neighbours of culprit"] == [line.where for line in complaints]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("xid: 79", "xidd: 79"), "names the kinds []"),
        (("part: development", "part: training"), "part"),
        (("at: 1", "att: 1"), "att"),
        (("xid: 79", "play: nothing"), "plays 'nothing'"),
    ],
    ids=["unknown kind", "unknown part", "unknown key", "unknown fan-out"],
)
def test_a_mistake_is_refused_by_name(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    (tmp_path / "fan_outs.yaml").write_text("stalled: [{where: job, step: stalled}]\n")
    (tmp_path / "mine.yaml").write_text(MECHANISM.replace(*change))

    with pytest.raises(ConfigError, match="broken") as caught:
        load_mechanisms(tmp_path)

    assert said in str(caught.value)


def test_a_line_is_read_by_the_shipped_signatures() -> None:
    raised = read_line("[rank3]: KeyError: 'image_path'", "job")
    fell = read_line("NVRM: GPU 0000:18:00: GPU has fallen off the bus.", "kernel")

    assert raised is not None
    assert fell is not None
    assert ("U", 3) == (raised.signature.event_class.value, raised.rank)
    assert "H" == fell.signature.event_class.value
    assert read_line("step 12 of 100, loss 2.31", "job") is None
