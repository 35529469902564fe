"""The hook's recorder with a torch that has, lacks or refuses what it needs."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peerwatch_exporter
from peerwatch_exporter.sources.collectives.groups_file import read_groups
from peerwatch_exporter.sources.collectives.members import parse_members

HOOK = Path(peerwatch_exporter.__file__).parent / "hook" / "peerwatch_recorder.py"


def load():
    spec = importlib.util.spec_from_file_location("peerwatch_recorder", HOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recorder_module = load()


@pytest.fixture(autouse=True)
def ring(monkeypatch):
    """Leave the environment of other tests as it is: the recorder sets what is not set."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "512")


class Server:
    """Stands for torch's worker server."""

    def __init__(self, path):
        assert not Path(path).exists()  # as torch does
        Path(path).touch()
        self.ended = False

    def shutdown(self):
        self.ended = True


@pytest.fixture
def torch(monkeypatch):
    """Return a torch with two process groups, whose parts a test may take away."""
    distributed = ModuleType("torch.distributed.distributed_c10d")
    everyone, even = _Group([0, 1, 2, 3], "undefined"), _Group([0, 2], "undefined")
    distributed._world = SimpleNamespace(pg_names={everyone: "0", even: "1"})
    distributed.get_process_group_ranks = lambda group: group.ranks
    library = ModuleType("torch._C._distributed_c10d")
    library._WorkerServer = Server
    torch = ModuleType("torch")
    torch.__version__ = "2.13.0"
    for module in (torch, distributed, library):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return SimpleNamespace(distributed=distributed, library=library)


class _Group:
    def __init__(self, ranks, description):
        self.ranks = ranks
        self.group_desc = description


def written(directory):
    return json.loads((directory / "rank-3.groups.json").read_text())


def test_groups_are_written_again_only_when_there_are_others(torch, tmp_path):
    recorder = recorder_module.Recorder(tmp_path)
    recorder.update(3)
    file = read_groups(tmp_path / "rank-3.groups.json")
    assert ("", os.getpid()) == (file.unavailable, file.pid)
    assert {"0": ("0", "", "0-3", 4), "1": ("1", "", "0,2", 2)} == dict(file.groups)
    before = (tmp_path / "rank-3.groups.json").stat().st_mtime_ns
    recorder.update(3)
    assert before == (tmp_path / "rank-3.groups.json").stat().st_mtime_ns
    torch.distributed._world.pg_names[_Group([1, 5, 9], "expert")] = "2"
    recorder.update(3)
    assert {"name": "2", "description": "expert", "members": "1-9:4"} in written(tmp_path)["groups"]
    recorder.end(keep_files=False)
    assert [] == list(tmp_path.iterdir())


def test_socket_left_by_a_killed_rank_is_replaced(torch, tmp_path):
    (tmp_path / "rank-3.sock").touch()
    recorder_module.Recorder(tmp_path).update(3)
    assert "" == written(tmp_path)["unavailable"]


def test_torch_without_a_worker_server_is_told_of_with_its_groups(torch, tmp_path):
    del torch.library._WorkerServer
    recorder_module.Recorder(tmp_path).update(3)
    assert "_WorkerServer" in written(tmp_path)["unavailable"]
    assert 2 == len(written(tmp_path)["groups"])
    assert not (tmp_path / "rank-3.sock").exists()


def test_torch_with_other_names_for_its_groups_is_told_of(torch, tmp_path):
    del torch.distributed._world
    recorder_module.Recorder(tmp_path).update(3)
    assert "_world" in written(tmp_path)["unavailable"]
    assert (tmp_path / "rank-3.sock").exists()


def test_path_that_is_too_long_for_a_socket_is_told_of(torch, tmp_path):
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    recorder_module.Recorder(directory).update(3)
    assert "107 bytes" in written(directory)["unavailable"]


def test_switched_off_it_touches_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PEERWATCH_COLLECTIVES", "0")
    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    assert recorder_module.start(tmp_path) is None
    assert "TORCH_FR_BUFFER_SIZE" not in os.environ


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_ring_that_the_user_chose_stays(monkeypatch, tmp_path, name):
    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    monkeypatch.setenv(name, "4000")
    recorder_module.Recorder(tmp_path)
    assert "4000" == os.environ[name]
    assert os.environ.get("TORCH_FR_BUFFER_SIZE") in (None, "4000")


@given(st.sets(st.integers(0, 60)) | st.builds(range, st.integers(0, 9), st.just(99), st.just(8)))
def test_members_are_read_as_they_were_written(ranks):
    text = recorder_module.ranges(list(ranks))
    assert sorted(ranks) == sorted(chain.from_iterable(parse_members(text)))
