"""What the settings file names: actions and a cluster, each with settings of its own."""

from __future__ import annotations

import pytest
import yaml

from peerwatch_common.errors import ConfigError
from peerwatch_responder import __main__
from peerwatch_responder.action import registered_actions
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.cluster import registered_clusters
from peerwatch_responder.process import program
from peerwatch_responder.settings.load import load_settings


def mistakes(folder, **settings):
    path = folder / "responder.yaml"
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError) as found:
        load_settings(path)
    return found.value.mistakes


def test_without_a_cluster_only_a_driver_is_told():
    assert isinstance(load_settings(None).cluster, DriverOnly)


@pytest.mark.parametrize(
    ("written", "forced", "dry_run"),
    [(None, False, True), (True, False, True), (False, False, False), (False, True, True)],
)
def test_a_dry_run_is_the_default_and_can_be_forced(tmp_path, written, forced, dry_run):
    path = tmp_path / "responder.yaml"
    path.write_text(yaml.safe_dump({} if written is None else {"dry_run": written}))
    assert load_settings(path, dry_run=forced).config.dry_run is dry_run


@pytest.mark.parametrize(("flags", "dry_run"), [([], False), (["--dry-run"], True)])
def test_the_flag_wins_over_the_file(tmp_path, monkeypatch, flags, dry_run):
    path = tmp_path / "responder.yaml"
    path.write_text("dry_run: false\n")
    ran = []
    monkeypatch.setattr(program, "run_responder", ran.append)
    monkeypatch.setattr(__main__, "set_up_logging", lambda *_: None)
    assert __main__.main(["run", "--config", str(path), *flags]) == 0
    assert [each.config.dry_run for each in ran] == [dry_run]


def test_clusters_are_registered_beside_their_actions():
    clusters = registered_clusters()
    assert "driver" in clusters
    for each in clusters.values():
        assert each.summary
        assert "\n" not in each.summary
    assert {each.cluster for each in registered_actions().values()} <= {"", *clusters}


def test_mistakes_of_a_cluster_are_told(tmp_path):
    (mistake,) = mistakes(tmp_path, cluster={"type": "drivers"})
    assert mistake == "cluster.type: there is no cluster 'drivers'; did you mean 'driver'?"
    (mistake,) = mistakes(tmp_path, cluster={"nodes": 7})
    assert mistake.startswith("cluster.nodes: ")


def test_what_starts_a_job_again_is_known_by_its_settings(tmp_path):
    path = tmp_path / "responder.yaml"
    order = {"type": "driver_command", "command": ["true"]}
    wants = ("checkpoint", "pause", "replace", "restart", "resume")
    path.write_text(yaml.safe_dump({"actions": {each: {**order, "want": each} for each in wants}}))
    assert load_settings(path).restart == {"replace", "restart"}
    path.write_text(
        yaml.safe_dump({"cluster": {"type": "slurm"}, "actions": {"slurm_requeue": {}}})
    )
    assert load_settings(path).restart == {"slurm_requeue"}
