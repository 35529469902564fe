"""Settings: defaults, the shipped example, and every kind of mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.load import load_config

EXAMPLE = Path(__file__).parents[2] / "exporter" / "exporter.example.yaml"
KNOWN = ("cpu", "disk", "gpu")


def load(path, text=None, listen=None):
    if text is not None:
        path.write_text(text)
    return load_config(path, listen=listen, known_collectors=KNOWN)


def mistakes_of(path, text=None, listen=None):
    with pytest.raises(ConfigError) as caught:
        load(path, text, listen)
    return caught.value.mistakes


def test_no_file_gives_the_defaults():
    assert ExporterConfig() == load(None)


def test_empty_file_gives_the_defaults(tmp_path):
    assert ExporterConfig() == load(tmp_path / "empty.yaml", "# nothing set\n")


def test_example_is_exactly_the_defaults():
    assert ExporterConfig() == load(EXAMPLE)


def test_example_shows_every_setting():
    def keys(section):
        for name, field in section.model_fields.items():
            nested = field.annotation
            if isinstance(nested, type) and issubclass(nested, BaseModel):
                yield from (f"{name}.{key}" for key in keys(nested))
            else:
                yield name

    def written(data, prefix=""):
        for key, value in data.items():
            if isinstance(value, dict) and value:
                yield from written(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"

    assert sorted(keys(ExporterConfig)) == sorted(written(yaml.safe_load(EXAMPLE.read_text())))


def test_settings_are_frozen_once_loaded():
    with pytest.raises(ValidationError):
        load(None).listen.port = 1


def test_all_mistakes_are_listed_at_once_with_their_paths(tmp_path):
    text = """
listen: {port: 70000}
paths: {procfz: /proc}
scope: {cpus: true, environment: {RANK: 3}}
collectors: {enabled: [cpu, cpus], disabled: [gpus]}
deadline_seconds: soon
nvlinks: {}
"""
    assert [
        "listen.port: should be less than or equal to 65535, not 70000",
        "scope.environment.RANK: should be a valid string, not 3",
        "scope.cpus: should be a valid number, not True",
        "paths.procfz: unknown key 'procfz'; did you mean 'procfs'?",
        "deadline_seconds: should be a valid number, not 'soon'",
        "nvlinks: unknown key 'nvlinks'; did you mean 'nvlink'?",
        "collectors.enabled.1: no collector 'cpus'; there are cpu, disk, gpu",
        "collectors.disabled.0: no collector 'gpus'; there are cpu, disk, gpu",
    ] == mistakes_of(tmp_path / "wrong.yaml", text)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param("deadline_seconds: 0", "should be greater than 0", id="zero deadline"),
        pytest.param("deadline_seconds: 1", "less than or equal to 0.95, not 1", id="no tick left"),
        pytest.param("fast: {history_seconds: 61}", "equal to 60, not 61", id="long history"),
        pytest.param("collectors: {max_series: 0}", "equal to 1, not 0", id="no series"),
        pytest.param("deadline_seconds: .nan", "deadline_seconds", id="not a number"),
        pytest.param("scope: {memory_bytes: -1}", "should be greater than 0", id="no memory"),
        pytest.param("scope: {kind: pod}", "should be 'host' or 'processes'", id="unknown scope"),
        pytest.param("scope: {kind: processes}", "needs at least one variable", id="no mark"),
        pytest.param("listen: 9400", "listen: ", id="section is a number"),
        pytest.param("collectors: {enabled: cpu}", "should be a valid list", id="not a list"),
        pytest.param("- listen", "holds list, not a mapping", id="list on top"),
        pytest.param("listen: {port: 1", "not YAML", id="broken YAML"),
        pytest.param("jobs: " + "[" * 5000, "is nested too deeply", id="endless brackets"),
        pytest.param("jobs: {}\njobs: {}", "key 'jobs' stands twice (line 2)", id="twice"),
        pytest.param("xid: {severity: {109: fatal}}", "xid.severity.109: ", id="unknown class"),
        pytest.param("xid: {severity: {0: watch}}", "greater than or equal to 1", id="no code"),
        pytest.param("xid: {severity: {x: watch}}", "a valid integer, not 'x'", id="code in words"),
        pytest.param("xid: {severity: [109]}", "a valid dictionary", id="codes without classes"),
        pytest.param("jobs: {mapping_directory: 7}", "jobs.mapping_directory", id="no path"),
    ],
)
def test_impossible_setting_is_refused(tmp_path, text, mistake):
    (only,) = mistakes_of(tmp_path / "wrong.yaml", text)
    assert mistake in only


def test_missing_file_is_a_mistake(tmp_path):
    path = tmp_path / "absent.yaml"
    assert [f"{path}: cannot be read: No such file or directory"] == mistakes_of(path)


def test_binary_file_is_a_mistake(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(os.urandom(8) + b"\xff\xfe")
    assert [f"{path}: not YAML: not a UTF-8 text file"] == mistakes_of(path)


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:9500", ("127.0.0.1", 9500)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_listen_flag_wins_over_the_file(tmp_path, listen, expected):
    config = load(tmp_path / "port.yaml", "listen: {address: 10.0.0.1, port: 9999}", listen)
    assert expected == (config.listen.address, config.listen.port)


@pytest.mark.parametrize("listen", ["9400", ":9400", "host:", "host:http", "host:99999"])
def test_impossible_listen_flag_is_listed_with_the_files_mistakes(tmp_path, listen):
    mistakes = mistakes_of(tmp_path / "wrong.yaml", "nvlink: {per_link: 1}", listen)
    assert 2 == len(mistakes)
    assert any("listen" in mistake for mistake in mistakes)
