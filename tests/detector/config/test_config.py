"""None"""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.config_text import mistakes, written
from detector.fakes import metric
from peerwatch_common.errors import ConfigError
from peerwatch_detector.__main__ import main
from peerwatch_detector.config import DetectorConfig, load_config


def test_no_file_gives_the_defaults() -> None:
    config = load_config(None)
    assert DetectorConfig() == config
    assert (240.0, 8, "peerwatch", 5.0) == (
        config.continuity.threshold_seconds,
        config.window_length,
        config.method,
        config.similarity_threshold,
    )


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert DetectorConfig() == load_config(written(tmp_path, "# nothing yet\n"))


@pytest.mark.parametrize(
    ("text", "expected"), [("method: minder", 2.0), ("similarity: {threshold: 3.5}", 3.5)]
)
def test_the_threshold_follows_the_method_unless_it_is_set(
    tmp_path: Path, text: str, expected: float
) -> None:
    assert expected == load_config(written(tmp_path, text)).similarity_threshold


def test_settings_cannot_change_after_loading() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_config(None).window_length = 9  # type: ignore[misc]


UNKNOWN = [
    (
        "histry_seconds: 900",
        "histry_seconds: unknown key 'histry_seconds'; did you mean 'history_s",
    ),
    ("prometheus: {urll: x}", "prometheus.urll: unknown key 'urll'; did you mean 'url'?"),
    ("listen: {prt: 1}", "listen.prt: unknown key 'prt'; did you mean 'port'?"),
    ("similarity: {treshold: 1}", "similarity.treshold: unknown key 'treshold'; did you mean 'thr"),
    ("continuity: {gap: 1}", "continuity.gap: unknown key 'gap'; "),
    ("zscore: {x: 1}", "zscore.x: unknown key 'x'; known keys are period_seconds, threshold"),
    ("absent: {after: 1}", "absent.after: unknown key 'after'; "),
    ("metrics: {enable: []}", "metrics.enable: unknown key 'enable'; did you mean 'enabled'?"),
    (
        "metrics: {overrides: {cpu_usage: {bound: [0, 1]}}}",
        "metrics.overrides.cpu_usage.bound: unknown key 'bound'; did you mean 'bounds'?",
    ),
]


@pytest.mark.parametrize(("text", "expected"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_unknown_keys_are_refused_at_every_level(tmp_path: Path, text: str, expected: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.startswith(expected)


def test_an_unknown_key_of_an_extra_metric_is_refused(tmp_path: Path) -> None:
    import yaml

    text = yaml.safe_dump({"metrics": {"extra": [metric(boundz=[0, 1])]}})
    expected = "metrics.extra.0.boundz: unknown key 'boundz'; did you mean 'bounds'?"
    assert [expected] == mistakes(tmp_path, text)


IMPOSSIBLE = [
    ("window_length: eight", "window_length: should be a valid integer", "'eight'"),
    ("window_length: 1", "window_length: should be greater than or equal to 2", "1"),
    ("window_length: 8.5", "window_length: ", "8.5"),
    ("prometheus: 5", "prometheus: ", "5"),
    ("prometheus: {url: 'localhost:9090'}", "prometheus.url: ", "'localhost:9090'"),
    ("prometheus: {url: 'http://[::1'}", "prometheus.url: ", "is no address"),
    ("prometheus: {url: 'http://p:99999'}", "prometheus.url: ", "a port from 0 to 65535"),
    ("prometheus: {url: 'http://:9090'}", "prometheus.url: ", "names no host"),
    ("prometheus: {url: 'http://p/a?tenant=1'}", "prometheus.url: ", "must end with the path"),
    ("prometheus: {timeout_seconds: 0}", "prometheus.timeout_seconds: ", "0"),
    ("prometheus: {timeout_seconds: .inf}", "prometheus.timeout_seconds: ", "inf"),
    ("prometheus: {timeout_seconds: .nan}", "prometheus.timeout_seconds: ", "nan"),
    ("prometheus: {recorded: maybe}", "prometheus.recorded: ", "'maybe'"),
    ("prometheus: {headers: {X: [1]}}", "prometheus.headers.X: ", "a valid string"),
    ("listen: {port: 65536}", "listen.port: ", "65536"),
    ("method: magic", "method: ", "'magic'"),
    ("preset: nvidia", "preset: ", "'nvidia'"),
    ("similarity: {largest_share: 1.5}", "similarity.largest_share: ", "1.5"),
    ("similarity: {threshold: .inf}", "similarity.threshold: ", "inf"),
    ("metrics: {enabled: cpu_usage}", "metrics.enabled: ", "'cpu_usage'"),
    ("metrics: {enabled: []}", "metrics.enabled: ", "[]"),
    (
        "metrics: {overrides: {cpu_usage: {bounds: [1, 0]}}}",
        "metrics.overrides.cpu_usage.bounds: [1.0, 0.0] must be",
        "low < high",
    ),
    (
        "metrics: {overrides: {cpu_usage: {bounds: [0, .inf]}}}",
        "metrics.overrides.cpu_usage.bounds.1: ",
        "inf",
    ),
    (
        "metrics: {overrides: {cpu_usage: {min_effect_size: 0}}}",
        "metrics.overrides.cpu_usage.min_effect_size: ",
        "0",
    ),
    (
        "metrics: {overrides: {cpu_usage: {recorded: 'rate(x[1m])'}}}",
        "metrics.overrides.cpu_usage.recorded: ",
        "'rate(x[1m])'",
    ),
    (
        "metrics: {overrides: {cpu_usage: {expression: '{{ job'}}}",
        "metrics.overrides.cpu_usage.expression: ",
        "no Jinja2 template",
    ),
    (
        "metrics: {overrides: {cpu_usage: {expression: '{{ node }}'}}}",
        "metrics.overrides.cpu_usage.expression: ",
        "unknown name 'node'",
    ),
    ("1: 2", "1: unknown key '1'; known keys are absent", "1"),
]


@pytest.mark.parametrize(
    ("text", "path", "value"), IMPOSSIBLE, ids=[text for text, _, _ in IMPOSSIBLE]
)
def test_wrong_types_and_impossible_values_tell_path_and_value(
    tmp_path: Path, text: str, path: str, value: str
) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.startswith(path)
    assert value in mistake
    assert "\n" not in mistake


@pytest.mark.parametrize(
    "text", ["history_seconds: 200", "continuity: {threshold_seconds: 900}"], ids=["low", "high"]
)
def test_the_history_must_hold_a_whole_deviation(tmp_path: Path, text: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert "threshold_seconds + window_length" in mistake
    assert "raise history_seconds" in mistake


STEPS = [
    ("step_seconds: 0", "step_seconds: should be greater than or equal to 0.01"),
    ("step_seconds: 61", "step_seconds: should be less than or equal to 60"),
    ("step_seconds: 0.3", "step_seconds: 0.3 must be whole seconds or divide a second"),
    ("step_seconds: 1.5", "step_seconds: 1.5 must be whole seconds or divide a second"),
    (
        "{step_seconds: 0.01, history_seconds: 1800}",
        "history_seconds: 1800 must be between 0.6 and 1000 with step_seconds 0.01",
    ),
    (
        "{step_seconds: 0.1, history_seconds: 5, continuity: {threshold_seconds: 2}}",
        "history_seconds: 5 must be between 6 and 7200 with step_seconds 0.1",
    ),
    (
        "{step_seconds: 0.1, history_seconds: 10, continuity: {threshold_seconds: 2}}",
        "history_seconds: 10 must be at least cycle_seconds 15",
    ),
    (
        "{step_seconds: 0.1, peerwatch: {level_seconds: 0.4}}",
        "peerwatch: level_seconds 0.4 must be at least 0.5 with step_seconds 0.1",
    ),
    (
        "{step_seconds: 0.1, resolution_seconds: 0.5, peerwatch: {level_seconds: 1}}",
        "peerwatch: level_seconds 1 must be at least 2.5 with step_seconds 0.1",
    ),
    ("resolution_seconds: 2", "resolution_seconds: should be less than or equal to 1"),
    ("resolution_seconds: 0.5", "resolution_seconds: 0.5 must be a multiple of step_seconds, at"),
    (
        "{step_seconds: 0.1, resolution_seconds: 0.25}",
        "resolution_seconds: 0.25 must be a multiple of step_seconds, at most a second: of 0.1",
    ),
    ("step_seconds: 20", "peerwatch: level_seconds 15 must be at least 20 with step_seconds 20"),
    ("peerwatch: {level_seconds: 4}", "peerwatch: level_seconds 4 must be at least 5"),
    (
        "{step_seconds: 10, prometheus: {recorded: false}}",
        "rate_window_seconds: 15 must be at least two steps of 10 s",
    ),
    ("step_seconds: 0.0625", "step_seconds: 0.0625 must be whole milliseconds, as 0.125"),
    (
        "metrics: {overrides: {cpu_usage: {peak_seconds: 0}}}",
        "metrics.overrides.cpu_usage.peak_seconds: ",
    ),
]


@pytest.mark.parametrize(("text", "expected"), STEPS, ids=[text for text, _ in STEPS])
def test_what_does_not_fit_the_step_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.startswith(expected)
    # A sentence of a list, as in the exporter: without a full stop.
    assert not mistake.endswith(".")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("api: grpc", "api: should be 'auto', 'remote_read', 'export', 'query' or"),
        ("connections: 0", "connections: should be greater than or equal to 1, not 0"),
        ("max_age_seconds: 0", "max_age_seconds: should be greater than or equal to 0.1"),
        ("max_response_bytes: 10", "max_response_bytes: should be greater than or equal to"),
        ("partial: warn", "partial: should be 'keep' or 'refuse', not 'warn'"),
        ("deadline: 5", "deadline: unknown key 'deadline'; did you mean 'deadline_seconds'?"),
    ],
)
def test_limits_of_reading_have_limits(tmp_path: Path, text: str, expected: str) -> None:
    (mistake,) = mistakes(tmp_path, f"prometheus: {{reading: {{{text}}}}}")
    assert mistake.startswith(f"prometheus.reading.{expected}")


@pytest.mark.parametrize(
    ("text", "resolution", "evaluation"),
    [
        ("{}", 1.0, 5.0),
        ("step_seconds: 10", 1.0, 5.0),
        ("{step_seconds: 0.1, peerwatch: {level_seconds: 5}}", 0.1, 0.5),
        ("{step_seconds: 0.1, resolution_seconds: 0.5}", 0.5, 2.5),
        ("{step_seconds: 0.1, resolution_seconds: 1}", 1.0, 5.0),
    ],
)
def test_what_is_counted_in_samples_has_a_length_of_its_own(
    tmp_path: Path, text: str, resolution: float, evaluation: float
) -> None:
    config = load_config(written(tmp_path, text))
    assert (resolution, evaluation) == (config.resolution_seconds, config.evaluation_seconds)


def test_a_deviation_is_counted_in_steps(tmp_path: Path) -> None:
    text = "{step_seconds: 10, history_seconds: 300}"
    assert [
        "continuity: threshold_seconds + window_length = 320 must be at most history_seconds "
        "300, or a restart would lose deviations; raise history_seconds"
    ] == mistakes(tmp_path, text)


def test_whole_seconds_stay_whole_numbers(tmp_path: Path) -> None:
    text = "{history_seconds: 600.0, peerwatch: {level_seconds: 12.5}}"
    config = load_config(written(tmp_path, text))
    assert ("600", "12.5") == (str(config.history_seconds), str(config.peerwatch.level_seconds))


def test_copies_without_replicas_are_refused(tmp_path: Path) -> None:
    (mistake,) = mistakes(tmp_path, "replicas: {replication: 2}")
    assert mistake.startswith("replicas.replication: 2 detectors cannot evaluate the same job")
    both = load_config(written(tmp_path, "replicas: {enabled: true, replication: 2}"))
    assert 2 == both.replicas.replication


def test_the_example_for_bursts_loads() -> None:
    example = Path(__file__).parents[3] / "detector" / "detector.fine.example.yaml"
    for method in ("peerwatch", "minder"):
        config = load_config(example).model_copy(update={"method": method})
        assert (0.1, ["rdma_bytes"]) == (
            config.step_seconds,
            [metric_config.name for metric_config in config.detection_metrics()],
        )


def test_unknown_and_repeated_metric_names_are_listed_with_those_that_exist(
    tmp_path: Path,
) -> None:
    text = "metrics: {enabled: [cpu, gpu_power, gpu_power], overrides: {nope: {}}}"
    (mistake,) = mistakes(tmp_path, text)
    for part in (
        "enabled: unknown metric 'cpu'",
        "overrides: unknown metric 'nope'",
        "enabled: 'gpu_power' is there twice",
        "known metrics are heartbeat_age, ",
    ):
        assert part in mistake


def test_an_extra_metric_must_not_take_the_name_of_another(tmp_path: Path) -> None:
    import yaml

    text = yaml.safe_dump({"metrics": {"extra": [metric("cpu_usage")]}})
    (mistake,) = mistakes(tmp_path, text)
    assert "extra: metric 'cpu_usage' exists already" in mistake


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    text = """
    unknown: 1
    prometheus: {url: "ftp://x", tiemout_seconds: 3}
    listen: {port: many}
    method: magic
    history_seconds: 100
    metrics: {enabled: [cpu]}
    """
    paths = [mistake.split(": ")[0] for mistake in mistakes(tmp_path, text)]
    expected = {
        "unknown",
        "prometheus.url",
        "prometheus.tiemout_seconds",
        "listen.port",
        "method",
        "continuity",
        "metrics",
    }
    assert expected == set(paths)
    assert len(expected) == len(paths)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "missing.yaml")


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\ttab: 1"])
def test_what_is_not_yaml_is_told(tmp_path: Path, text: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert "not YAML: " in mistake


def test_a_binary_file_is_not_yaml(tmp_path: Path) -> None:
    path = tmp_path / "detector.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not YAML: "):
        load_config(path)


@pytest.mark.parametrize(("text", "kind"), [("- a", "list"), ("[]", "list"), ("5", "int")])
def test_a_file_must_hold_a_mapping(tmp_path: Path, text: str, kind: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert f"holds {kind}, not a mapping of sections" in mistake


def test_the_command_line_wins_and_leaves_the_rest_of_its_section(tmp_path: Path) -> None:
    path = written(tmp_path, "prometheus: {url: 'http://file', timeout_seconds: 3}\nlisten:\n")
    config = load_config(path, {"prometheus": {"url": "http://flag"}, "listen": {"port": "12"}})
    assert ("http://flag", 3.0) == (config.prometheus.url, config.prometheus.timeout_seconds)
    assert 12 == config.listen.port


def test_the_command_line_does_not_hide_a_mistake_in_its_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^prometheus: "):
        load_config(written(tmp_path, "prometheus: 5"), {"prometheus": {"url": "http://flag"}})


def test_mistakes_reach_the_terminal_and_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "methd: minder\nwindow_length: 0\n")
    assert 2 == main(["run", "--config", str(path)])
    lines = capsys.readouterr().err.splitlines()
    assert 2 == len(lines)
    assert all(line.startswith("peerwatch-detector: ") for line in lines)
    assert 2 == main(["run", "--prometheus", "nowhere", "--listen", "x:y"])
    stderr = capsys.readouterr().err
    assert "prometheus.url: " in stderr
    assert "listen.port: " in stderr


def test_the_shipped_example_loads_and_names_real_defaults() -> None:
    example = Path(__file__).parents[3] / "detector" / "detector.example.yaml"

    assert load_config(None) == load_config(example).model_copy(
        update={"metrics": load_config(None).metrics}
    )


def test_wrong_metric_names_are_told_beside_all_other_mistakes(tmp_path: Path) -> None:
    text = """
    preset: nope
    cycle_seconds: 0
    metrics: {enabled: [nix], overrides: {none: {bound: 1}}}
    minder: {metrics: [nada], join: 3}
    peerwatch: {progress_metrics: [nichts, gpu_power, gpu_power], busy_metric: nil,
      level_seconds: x}
    """
    found = mistakes(tmp_path, text)
    for name in ("nix", "none", "nada", "nichts", "nil"):
        assert 1 == sum(f"unknown metric {name!r}" in mistake for mistake in found)
    assert any("progress_metrics: 'gpu_power' is there twice" in mistake for mistake in found)
    for path in ("preset", "cycle_seconds", "metrics.overrides.none.bound", "minder.join"):
        assert any(mistake.startswith(f"{path}: ") for mistake in found)
    assert any(mistake.startswith("peerwatch.level_seconds: ") for mistake in found)


def test_progress_may_be_told_by_a_metric_of_your_own(tmp_path: Path) -> None:
    import yaml

    text = yaml.safe_dump(
        {"metrics": {"extra": [metric("steps")]}, "peerwatch": {"progress_metrics": ["steps"]}}
    )
    assert ["steps"] == load_config(written(tmp_path, text)).peerwatch.progress_metrics


@pytest.mark.parametrize("text", ["method: a\nmethod: b", "listen: {port: 1, port: 2}"])
def test_a_key_written_twice_is_refused(tmp_path: Path, text: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert "stands twice" in mistake
