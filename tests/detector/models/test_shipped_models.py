"""The models that ship with the package, and which models a configuration takes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

from peerwatch_common.errors import ConfigError
from peerwatch_demo.simulator import FAMILIES, simulate
from peerwatch_detector import __main__ as command
from peerwatch_detector.config import DetectorConfig, load_config
from peerwatch_detector.errors import ModelError
from peerwatch_detector.models import shipped
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.models.lstm_vae import LstmVae
from peerwatch_detector.models.shipped import configured_bundle, shipped_bundle
from peerwatch_detector.models.store import EMPTY

ROOT = Path(__file__).parents[3]
MINDER = DetectorConfig(method="minder")


def configured(**settings: object) -> DetectorConfig:
    return DetectorConfig.model_validate({"method": "minder"} | settings)


def names_of(config: DetectorConfig) -> dict[str, str]:
    bundle, _ = configured_bundle(config)
    return {k: model.name for k, model in bundle.models(config, config.detection_metrics()).items()}


def test_method_minder_runs_with_models_out_of_the_box() -> None:
    assert dict.fromkeys(MINDER.minder.metrics, "lstm_vae") == names_of(MINDER)
    together = configured(minder={"join": "integrated"})
    assert {"lstm_vae", "lstm_vae_integrated"} == set(names_of(together).values())


def test_the_shipped_models_are_of_every_metric_that_the_simulator_has() -> None:
    simulated = simulate("one", FAMILIES["plain"], 1, faulty=False)
    shipped_metrics = {metric.name for metric in DetectorConfig().detection_metrics()}
    assert set(simulated.samples) & shipped_metrics == set(shipped_bundle().cards)


def test_the_shipped_models_rebuild_what_they_were_made_for() -> None:
    bundle = shipped_bundle()
    cards = [*bundle.cards.values(), bundle.integrated]
    for card in cards:
        assert card is not None
        assert card.reconstruction_error <= max(5e-4, 0.25 * card.variance)
        assert card.level_error <= 5e-3
        assert 8 == card.window_length
    levels = np.repeat(np.linspace(0.05, 0.95, 10, dtype=np.float32)[:, None], 8, axis=1)
    for name in bundle.cards:
        rebuilt = LstmVae(bundle.weights[name]).embed(levels)
        assert float(np.abs(rebuilt - levels).max()) < 0.2, name
        assert float(np.abs(rebuilt - levels).mean()) < 0.05, name


def test_the_wheel_holds_the_shipped_models() -> None:
    builder = WheelBuilder(str(ROOT))
    held = {file.distribution_path for file in builder.recurse_included_files()}
    assert "peerwatch_detector/models/default.npz" in held


@pytest.mark.parametrize(("text", "expected"), [("none", "none"), ("null", "default")])
def test_a_configuration_without_models_says_so(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text(f"models: {text}\n")
    assert expected == load_config(path).models
    bundle, _ = configured_bundle(load_config(path))
    assert (text == "none") == (bundle is EMPTY)


@pytest.mark.parametrize("value", [3, "", [1], False])
def test_what_is_no_bundle_is_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text(f"models: {value!r}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert [f"models: {value!r} must be default, none, or the path of a model bundle"] == (
        caught.value.mistakes
    )


def test_a_metric_with_other_bounds_does_without_its_shipped_model() -> None:
    config = configured(metrics={"overrides": {"cpu_usage": {"bounds": [0, 2]}}})
    bundle, reasons = configured_bundle(config)
    found = names_of(config)
    assert "identity" == found.pop("cpu_usage")
    assert {"lstm_vae"} == set(found.values())
    assert INTEGRATED not in bundle.weights
    assert 2 == len(reasons)
    assert "metric 'cpu_usage' was trained with bounds (0.0, 1.0)" in reasons[0]


def test_other_windows_do_without_all_shipped_models() -> None:
    bundle, reasons = configured_bundle(configured(window_length=16))
    assert {} == bundle.weights == bundle.cards
    assert all("trained with window_length 8" in reason for reason in reasons)


def test_a_bundle_of_ones_own_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    shipped_bundle().save(path)
    config = configured(models=path)
    assert shipped_bundle().cards == configured_bundle(config)[0].cards
    other = configured(models=path, metrics={"overrides": {"cpu_usage": {"bounds": [0, 2]}}})
    with pytest.raises(ModelError, match=r"own\.npz: The model of metric 'cpu_usage' was trained"):
        configured_bundle(other)


def test_what_is_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = configured(metrics={"overrides": {"cpu_usage": {"bounds": [0, 2]}}})
    with caplog.at_level(logging.WARNING):
        command._bundle(config)
    assert "shipped_model_left_out The model of metric 'cpu_usage'" in caplog.text
    assert "no_model metrics=cpu_usage compared=raw_windows" in caplog.text
    caplog.clear()
    command._bundle(MINDER)
    command._bundle(DetectorConfig())
    command._bundle(configured(models="none"))
    assert "" == caplog.text


def test_shipped_models_that_are_missing_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "FILE", "missing.npz")
    with pytest.raises(ModelError, match=r"missing\.npz: cannot be read.*make -C .* models"):
        shipped_bundle()
