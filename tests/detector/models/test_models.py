from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from detector.fakes import config_for, metric
from detector.healthy_windows import healthy_windows, quiet
from peerwatch_detector import compiled
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ModelError
from peerwatch_detector.models import forward
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.models.integrated import IntegratedLstmVae
from peerwatch_detector.models.lstm_vae import LstmVae, Weights
from peerwatch_detector.models.shipped import shipped_bundle
from peerwatch_detector.models.store import (
    EMPTY,
    FORMAT,
    Bundle,
    IntegratedCard,
    ModelCard,
    load_bundle,
)
from peerwatch_detector.training.fit import Trained, TrainingOptions, train_model
from peerwatch_detector.training.network import Network, export

# The model is trained once for all.
pytestmark = pytest.mark.xdist_group("trained_model")


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train_model(healthy_windows(), TrainingOptions(steps=300, seed=1), quiet)


def some_windows(count: int = 5000) -> np.ndarray:
    return np.random.default_rng(3).random((count, 8)).astype(np.float32)


def in_torch(weights: Weights) -> Network:
    """Put exported weights back into the torch network."""
    network = Network(weights.inputs, weights.encoder_hidden.shape[1], len(weights.mean_bias))
    zero = torch.zeros_like(network.encoder.bias_hh_l0)
    network.load_state_dict(
        network.state_dict()
        | {
            name: torch.from_numpy(value)
            for name, value in {
                "encoder.weight_ih_l0": weights.encoder_input,
                "encoder.weight_hh_l0": weights.encoder_hidden,
                "encoder.bias_ih_l0": weights.encoder_bias,
                "mean.weight": weights.mean_weight,
                "mean.bias": weights.mean_bias,
                "expand.weight": weights.expand_weight,
                "expand.bias": weights.expand_bias,
                "decoder.weight_ih_l0": weights.decoder_input,
                "decoder.weight_hh_l0": weights.decoder_hidden,
                "decoder.bias_ih_l0": weights.decoder_bias,
                "output.weight": weights.output_weight,
                "output.bias": weights.output_bias,
            }.items()
        }
        | {"encoder.bias_hh_l0": zero, "decoder.bias_hh_l0": zero}
    )
    return network


def test_the_forward_pass_is_torchs_with_trained_weights(trained: Trained) -> None:
    # Longer than one block of the numpy version.
    given = np.concatenate([some_windows(), healthy_windows(), np.zeros((1, 8), np.float32)])
    network, steps = in_torch(trained.weights), torch.from_numpy(given).unsqueeze(-1)
    with torch.no_grad():
        rebuilt = network.embed(steps).squeeze(-1).numpy()
        latent = network.encode(steps)[0].numpy()
    np.testing.assert_allclose(LstmVae(trained.weights).embed(given), rebuilt, atol=1e-5)
    np.testing.assert_allclose(LstmVae(trained.weights, "latent").embed(given), latent, atol=1e-5)


def test_both_forward_passes_are_the_same_with_the_shipped_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = np.concatenate([some_windows(300), np.zeros((1, 8)), np.ones((1, 8))]).astype("f4")
    for name, weights in shipped_bundle().weights.items():
        if name == INTEGRATED:
            continue
        for embedding in ("reconstruction", "latent"):
            model = LstmVae(weights, embedding)
            fast = model.embed(given)
            with monkeypatch.context() as patch:
                patch.setattr(compiled, "AVAILABLE", False)
                slow = model.embed(given)
            np.testing.assert_allclose(slow, fast, atol=1e-5)


def test_the_compiled_tanh_is_that_of_numpy() -> None:
    values = np.concatenate([np.linspace(-12, 12, 20_001), [0.0, -1e30, 1e30]]).astype(np.float32)
    found = [forward.tanh(value) for value in values]
    np.testing.assert_allclose(np.tanh(values.astype(np.float64)), found, atol=4e-7)


def random_network(inputs: int, seed: int) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(inputs, hidden=5, latent=3)


@pytest.mark.parametrize(("length", "inputs"), [(2, 1), (8, 1), (30, 1), (8, 7), (3, 2)])
def test_exported_weights_give_what_the_network_gives(length: int, inputs: int) -> None:
    network = random_network(inputs, length)
    given = np.random.default_rng(1).random((40, length, inputs)).astype(np.float32)
    with torch.no_grad():
        expected = network.embed(torch.from_numpy(given)).numpy()
        latent = network.encode(torch.from_numpy(given))[0].numpy()
    weights = export(network)
    assert ("", inputs) == (weights.wrong(), weights.inputs)
    found = LstmVae(weights).embed(given if inputs > 1 else given[:, :, 0])
    assert (40, length * inputs) == found.shape
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5)
    np.testing.assert_allclose(LstmVae(weights, "latent").embed(given), latent, atol=1e-5)


def test_the_same_window_always_embeds_to_the_same_point(trained: Trained) -> None:
    model, given = LstmVae(trained.weights), some_windows()
    np.testing.assert_array_equal(model.embed(given), model.embed(given))
    part = model.embed(given[4090:4100])
    np.testing.assert_allclose(part, model.embed(given)[4090:4100], atol=1e-6)


def test_no_windows_embed_to_no_points(trained: Trained) -> None:
    assert (0, 8) == LstmVae(trained.weights).embed(np.empty((0, 8), np.float32)).shape
    assert (0, 8) == LstmVae(trained.weights, "latent").embed(np.empty((0, 8), np.float32)).shape


def card(**changes: object) -> ModelCard:
    values: dict = {
        "metric": "load",
        "unit": "ratio",
        "bounds": (0.0, 2.5e9),
        "window_length": 8,
        "windows": 300,
        "data_fingerprint": "abc",
        "reconstruction_error": 1e-4,
        "variance": 2e-2,
        "level_error": 1e-5,
    }
    return ModelCard(**(values | changes))


def together(*metrics: str, **changes: object) -> IntegratedCard:
    values: dict = {
        "metrics": metrics,
        "units": tuple("ratio" for _ in metrics),
        "bounds": tuple((0.0, 1.0) for _ in metrics),
        "levels": tuple(0.25 for _ in metrics),
        "window_length": 8,
        "windows": 300,
        "data_fingerprint": "abc",
        "reconstruction_error": 1e-4,
        "variance": 2e-2,
        "level_error": 1e-5,
    }
    return IntegratedCard(**(values | changes))


def integrated_bundle(**changes: object) -> Bundle:
    weights = export(random_network(2, 3))
    return Bundle({INTEGRATED: weights}, {}, together("load", "power", **changes))


def int_config(*names: str, **bounds: list[float]) -> DetectorConfig:
    metrics = [metric(name, bounds=bounds.get(name, [0, 1])) for name in names]
    return config_for(*metrics, method="minder", minder={"join": "integrated"})


def test_a_bundle_comes_back_as_it_was_saved(tmp_path: Path, trained: Trained) -> None:
    path = tmp_path / "models.npz"
    weights = {"load": trained.weights, INTEGRATED: export(random_network(2, 3))}
    bundle = Bundle(weights, {"load": card()}, together("load", "power"), {"seed": 3}, "0.0.9")
    bundle.save(path)
    assert [path] == list(tmp_path.iterdir())
    loaded = load_bundle(path)
    assert {"load": card()} == loaded.cards
    assert together("load", "power") == loaded.integrated
    assert ({"seed": 3}, "0.0.9") == (loaded.options, loaded.package_version)
    model = loaded.model("load", (0.0, 2.5e9), 8, "reconstruction")
    assert LstmVae(trained.weights).fingerprint == model.fingerprint
    assert 12 == len(model.fingerprint)
    given = some_windows(20)
    np.testing.assert_array_equal(LstmVae(trained.weights).embed(given), model.embed(given))
    again = LstmVae(loaded.weights[INTEGRATED]).fingerprint
    assert LstmVae(weights[INTEGRATED]).fingerprint == again


def test_equal_bundles_are_equal_files(tmp_path: Path, trained: Trained) -> None:
    path, other = tmp_path / "one.npz", tmp_path / "other.npz"
    saved(path, trained.weights)
    saved(other, trained.weights)
    assert path.read_bytes() == other.read_bytes()


def test_a_metric_without_a_model_is_compared_by_its_raw_windows() -> None:
    model = EMPTY.model("load", (0, 1), 8, "reconstruction")
    assert isinstance(model, Identity)
    given = some_windows(4)
    np.testing.assert_array_equal(given, model.embed(given))


@pytest.mark.parametrize(
    ("bounds", "length", "name"),
    [((0.0, 1.0), 8, "bounds"), ((0.0, 2.5e9), 9, "window_length")],
)
def test_a_model_made_for_other_settings_is_refused(
    trained: Trained, bounds: tuple[float, float], length: int, name: str
) -> None:
    bundle = Bundle({"load": trained.weights}, {"load": card()})
    with pytest.raises(ModelError, match=rf"metric 'load' was trained with {name} .* train again"):
        bundle.model("load", bounds, length, "reconstruction")
    config = config_for(metric("load", bounds=list(bounds)), window_length=length)
    with pytest.raises(ModelError, match=rf"metric 'load' was trained with {name} .* train again"):
        bundle.models(config, config.detection_metrics())


def test_a_model_made_for_another_unit_is_refused(trained: Trained) -> None:
    config = config_for(metric("load", bounds=[0, 2.5e9]))
    bundle = Bundle({"load": trained.weights}, {"load": card(unit="percent")})
    with pytest.raises(ModelError, match=r"trained with unit 'percent', the .* says 'ratio'"):
        bundle.models(config, config.detection_metrics())


def test_the_models_of_a_configuration_are_those_of_its_metrics(trained: Trained) -> None:
    config = config_for(metric("load", bounds=[0, 2.5e9]), metric("power"))
    bundle = Bundle({"load": trained.weights, "other": trained.weights}, {"load": card()})
    found = bundle.models(config, config.detection_metrics())
    assert {"load": "lstm_vae", "power": "identity"} == {
        k: model.name for k, model in found.items()
    }


def test_only_the_variant_int_takes_the_model_of_all_metrics() -> None:
    bundle, config = integrated_bundle(), int_config("load", "power")
    found = bundle.models(config, config.detection_metrics())
    model = found[INTEGRATED]
    assert isinstance(model, IntegratedLstmVae)
    assert {"load": 0.25, "power": 0.25} == model.levels
    assert "lstm_vae_integrated" == model.name
    for other in ({"method": "minder"}, {"minder": {"join": "integrated"}}):
        plain = config_for(metric("load"), metric("power"), **other)
        assert {"load", "power"} == set(bundle.models(plain, plain.detection_metrics()))


@pytest.mark.parametrize(
    ("bundle", "config", "reason"),
    [
        (EMPTY, int_config("load", "power"), "has none that fits; .* train --integrated"),
        (integrated_bundle(), int_config("load", "disk"), "knows no metric 'disk', only load, pow"),
        (integrated_bundle(), int_config("load", "power", power=[0, 3]), "'power' .* bounds"),
        (integrated_bundle(window_length=9), int_config("load"), "trained with window_length 9"),
        (integrated_bundle(units=("ratio", "W")), int_config("power"), "trained with unit 'W'"),
    ],
    ids=["none", "unknown metric", "bounds", "window length", "unit"],
)
def test_a_model_of_all_metrics_that_does_not_fit_is_refused(
    bundle: Bundle, config: DetectorConfig, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        bundle.models(config, config.detection_metrics())


def test_metrics_are_stacked_in_the_order_of_the_models_inputs() -> None:
    model = IntegratedLstmVae(
        export(random_network(3, 0)), "reconstruction", {"a": 0.1, "b": 0.2, "c": 0.3}
    )
    windows = {"c": some_windows(5), "a": some_windows(5) / 2}
    stacked = model.stack(windows, (5, 8))
    np.testing.assert_array_equal(windows["a"], stacked[..., 0])
    np.testing.assert_array_equal(np.full((5, 8), 0.2, np.float32), stacked[..., 1])
    np.testing.assert_array_equal(windows["c"], stacked[..., 2])


def test_what_does_not_fit_is_left_out_of_a_bundle_with_the_reason(trained: Trained) -> None:
    bundle = Bundle(
        dict.fromkeys(("load", "power", INTEGRATED), trained.weights),
        {"load": card(), "power": card(metric="power", bounds=(0.0, 1.0))},
        together("power", "load"),
    )
    wanted = [metric("load", bounds=[0, 9]), metric("power"), metric("new")]
    config = config_for(*wanted)
    rest, reasons = bundle.fitting(config.detection_metrics(), 8)
    assert ["power"] == list(rest.cards) == list(rest.weights)
    assert rest.integrated is None
    assert 2 == len(reasons)
    assert "metric 'load' was trained with bounds (0.0, 2500000000.0)" in reasons[0]
    assert "all metrics together, 'load' among them," in reasons[1]
    kept, none = bundle.fitting(config_for(metric("power")).detection_metrics(), 8)
    assert (bundle, ()) == (kept, none)


def saved(path: Path, weights: Weights) -> Path:
    Bundle({"load": weights}, {"load": card()}).save(path)
    return path


def other_format(path: Path) -> None:
    with np.load(path) as data:
        arrays = dict(data)
    meta = json.loads(str(arrays["meta"])) | {"format": FORMAT - 1}
    np.savez(path, **(arrays | {"meta": np.array(json.dumps(meta))}))


def no_weights(path: Path) -> None:
    with np.load(path) as data:
        np.savez(path, meta=data["meta"])


def no_meta(path: Path) -> None:
    np.savez(path, other=np.ones(3))


def odd_meta(path: Path) -> None:
    np.savez(path, meta=np.array("[]"))


def odd_cards(path: Path) -> None:
    changed_meta(path, lambda meta: meta | {"models": [{"metric": "load"}]})


def changed_meta(path: Path, change: Callable[[dict], dict]) -> None:
    with np.load(path) as data:
        arrays = dict(data)
    meta = change(json.loads(str(arrays["meta"])))
    np.savez(path, **(arrays | {"meta": np.array(json.dumps(meta))}))


def changed_weight(path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    with np.load(path) as data:
        arrays = dict(data)
    np.savez(path, **(arrays | {name: change(arrays[name])}))


def other_shape(path: Path) -> None:
    changed_weight(path, "load/decoder_input", lambda array: array[:-1])


def not_finite(path: Path) -> None:
    changed_weight(path, "load/mean_bias", lambda array: array * np.nan)


def words_for_weights(path: Path) -> None:
    changed_weight(path, "load/mean_bias", lambda array: np.array(["a", "b"]))


def no_integrated_weights(path: Path) -> None:
    changed_meta(path, lambda meta: meta | {"integrated": asdict(together("load", "power"))})


def uneven_integrated(path: Path) -> None:
    integrated_bundle(units=("ratio",)).save(path)


def other_inputs(path: Path) -> None:
    integrated_bundle().save(path)
    changed_meta(path, lambda meta: meta | {"integrated": asdict(together("a", "b", "c"))})


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("not a bundle at all")


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def far_larger_unpacked(path: Path) -> None:
    with np.load(path) as data:
        arrays = dict(data)
    np.savez_compressed(path, **arrays, more=np.zeros(1 << 26, dtype=np.uint8))
    assert path.stat().st_size < 1 << 20


@pytest.mark.parametrize(
    "damage",
    [
        far_larger_unpacked,
        other_format,
        no_weights,
        no_meta,
        odd_meta,
        odd_cards,
        other_shape,
        not_finite,
        words_for_weights,
        no_integrated_weights,
        uneven_integrated,
        other_inputs,
        cut_short,
        empty,
        text,
        one_array,
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path, trained: Trained, damage) -> None:
    path = saved(tmp_path / "models.npz", trained.weights)
    damage(path)
    with pytest.raises(ModelError, match=r"models\.npz"):
        load_bundle(path)


def test_a_bundle_of_another_version_says_which(tmp_path: Path, trained: Trained) -> None:
    path = tmp_path / "models.npz"
    Bundle({"load": trained.weights}, {"load": card()}, package_version="0.0.7").save(path)
    changed_meta(path, lambda meta: meta | {"format": 7})
    with pytest.raises(ModelError, match=rf"format 7, written by peerwatch 0\.0\.7; .*{FORMAT}"):
        load_bundle(path)


def test_a_bundle_with_a_damaged_place_is_refused_or_whole(
    tmp_path: Path, trained: Trained
) -> None:
    path = saved(tmp_path / "models.npz", trained.weights)
    body = path.read_bytes()
    refused = 0
    for place in range(0, len(body), 37):
        path.write_bytes(body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :])
        try:
            loaded = load_bundle(path)
        except ModelError:
            refused += 1
        else:
            found = LstmVae(loaded.weights["load"]).fingerprint
            assert LstmVae(trained.weights).fingerprint == found
    assert refused > 20


def test_a_missing_bundle_tells_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be read: No such file.*train --output"):
        load_bundle(tmp_path / "missing.npz")


def test_a_bundle_that_cannot_be_written_is_told(tmp_path: Path, trained: Trained) -> None:
    with pytest.raises(ModelError, match="cannot be written: No such file"):
        saved(tmp_path / "nowhere" / "models.npz", trained.weights)
