from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from detector.fakes import config_for, healthy, metric
from peerwatch_detector.errors import ModelError, TrainingError
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.models.lstm_vae import LstmVae, Weights
from peerwatch_detector.models.store import EMPTY, Bundle, ModelCard, load_bundle
from peerwatch_detector.models.training import (
    Network,
    Trained,
    TrainingOptions,
    export,
    synthetic_windows,
    train_model,
)
from peerwatch_detector.preprocess import windows
from peerwatch_detector.training_run import train_bundle

QUICK = TrainingOptions(steps=30, largest_error=1.0)


def healthy_windows(level: float = 0.3) -> np.ndarray:
    cut = windows(healthy(6, 400, level=level), 8)
    return np.ascontiguousarray(cut.reshape(-1, 8))


def quiet(step: int, steps: int, loss: float) -> None:
    pass


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train_model(healthy_windows(), TrainingOptions(seed=1), quiet)


def some_windows(count: int = 5000) -> np.ndarray:
    return np.random.default_rng(3).random((count, 8)).astype(np.float32)


def in_torch(weights: Weights) -> Network:
    """Put exported weights back into the torch network."""
    network = Network()
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
    network = in_torch(trained.weights)
    with torch.no_grad():
        rebuilt = network.embed(torch.from_numpy(given)).numpy()
        latent = network.encode(torch.from_numpy(given))[0].numpy()
    np.testing.assert_allclose(LstmVae(trained.weights).embed(given), rebuilt, atol=1e-4)
    np.testing.assert_allclose(LstmVae(trained.weights, "latent").embed(given), latent, atol=1e-4)


@pytest.mark.parametrize("length", [2, 8, 30])
def test_exported_weights_give_what_the_network_gives(length: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(length)
        network = Network(hidden=5, latent=3)
    given = np.random.default_rng(1).random((40, length)).astype(np.float32)
    with torch.no_grad():
        expected = network.embed(torch.from_numpy(given)).numpy()
    found = LstmVae(export(network)).embed(given)
    assert (40, length) == found.shape
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_same_window_always_embeds_to_the_same_point(trained: Trained) -> None:
    model, given = LstmVae(trained.weights), some_windows()
    np.testing.assert_array_equal(model.embed(given), model.embed(given))
    part = model.embed(given[4090:4100])
    np.testing.assert_allclose(part, model.embed(given)[4090:4100], atol=1e-6)


def test_no_windows_embed_to_no_points(trained: Trained) -> None:
    assert (0, 8) == LstmVae(trained.weights).embed(np.empty((0, 8), np.float32)).shape
    assert (0, 8) == LstmVae(trained.weights, "latent").embed(np.empty((0, 8), np.float32)).shape


def test_training_rebuilds_windows_it_has_not_seen(trained: Trained) -> None:
    assert trained.reconstruction_error < 5e-4
    assert len(healthy_windows()) == trained.windows


@pytest.mark.parametrize("level", [0.05, 0.6, 0.9])
def test_a_level_that_was_never_seen_is_not_mapped_back_to_health(
    trained: Trained, level: float
) -> None:
    rebuilt = LstmVae(trained.weights).embed(np.full((1, 8), level, np.float32))
    assert float(np.abs(rebuilt - level).max()) < 0.1


def test_training_is_repeatable_by_its_seed() -> None:
    given = healthy_windows()
    first, second = (train_model(given, QUICK, quiet) for _ in range(2))
    other = train_model(given, TrainingOptions(steps=30, largest_error=1.0, seed=1), quiet)
    assert LstmVae(first.weights).fingerprint == LstmVae(second.weights).fingerprint
    assert LstmVae(first.weights).fingerprint != LstmVae(other.weights).fingerprint
    assert first.data_fingerprint == second.data_fingerprint == other.data_fingerprint


def test_training_leaves_torchs_randomness_and_threads_alone() -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    train_model(healthy_windows(), QUICK, quiet)
    assert torch.equal(state, torch.random.get_rng_state())
    assert threads == torch.get_num_threads()


def test_progress_is_told_up_to_the_last_step() -> None:
    told: list[tuple[int, int]] = []
    train_model(healthy_windows(), QUICK, lambda step, steps, loss: told.append((step, steps)))
    assert (30, 30) == told[-1]


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (np.zeros((199, 8), np.float32), "199 complete windows are too few .* 200"),
        (np.full((300, 8), np.nan, np.float32), "not finite"),
        (np.full((300, 8), 1.5, np.float32), "scale them to 0..1"),
        (np.full((300, 8), -0.1, np.float32), "scale them to 0..1"),
    ],
)
def test_windows_that_cannot_train_are_refused(broken: np.ndarray, text: str) -> None:
    with pytest.raises(TrainingError, match=text):
        train_model(broken, QUICK, quiet)


def test_a_model_that_learned_nothing_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"held-out windows .* give more --steps"):
        train_model(healthy_windows(0.8), TrainingOptions(steps=1, largest_error=1e-6), quiet)


@pytest.mark.parametrize("steps", [0, -3])
def test_training_without_steps_is_refused(steps: int) -> None:
    with pytest.raises(TrainingError, match="steps"):
        train_model(healthy_windows(), TrainingOptions(steps=steps), quiet)


def test_synthetic_windows_cover_the_whole_scale() -> None:
    drawn = synthetic_windows(healthy_windows(), np.random.default_rng(0))
    assert (len(healthy_windows()) // 2, 8) == drawn.shape
    assert 0 <= drawn.min() < 0.05
    assert 0.95 < drawn.max() <= 1
    assert np.float32 == drawn.dtype


def card(**changes: object) -> ModelCard:
    values: dict = {
        "metric": "load",
        "unit": "ratio",
        "bounds": (0.0, 2.5e9),
        "window_length": 8,
        "windows": 300,
        "data_fingerprint": "abc",
        "reconstruction_error": 1e-4,
    }
    return ModelCard(**(values | changes))


def test_a_bundle_comes_back_as_it_was_saved(tmp_path: Path, trained: Trained) -> None:
    path = tmp_path / "models.npz"
    Bundle({"load": trained.weights}, {"load": card()}).save(path)
    assert [path] == list(tmp_path.iterdir())
    loaded = load_bundle(path)
    assert {"load": card()} == loaded.cards
    model = loaded.model("load", (0.0, 2.5e9), 8, "reconstruction")
    assert LstmVae(trained.weights).fingerprint == model.fingerprint
    assert 12 == len(model.fingerprint)
    given = some_windows(20)
    np.testing.assert_array_equal(LstmVae(trained.weights).embed(given), model.embed(given))


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


def saved(path: Path, weights: Weights) -> Path:
    Bundle({"load": weights}, {"load": card()}).save(path)
    return path


def other_format(path: Path) -> None:
    with np.load(path) as data:
        arrays = dict(data)
    meta = json.loads(str(arrays["meta"])) | {"format": 2}
    np.savez(path, **(arrays | {"meta": np.array(json.dumps(meta))}))


def no_weights(path: Path) -> None:
    with np.load(path) as data:
        np.savez(path, meta=data["meta"])


def no_meta(path: Path) -> None:
    np.savez(path, other=np.ones(3))


def odd_meta(path: Path) -> None:
    np.savez(path, meta=np.array("[]"))


def odd_cards(path: Path) -> None:
    np.savez(path, meta=np.array(json.dumps({"format": 1, "models": [{"metric": "load"}]})))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("not a bundle at all")


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


@pytest.mark.parametrize(
    "damage",
    [other_format, no_weights, no_meta, odd_meta, odd_cards, cut_short, empty, text, one_array],
    ids=lambda damage: damage.__name__,
)
def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path, trained: Trained, damage) -> None:
    path = saved(tmp_path / "models.npz", trained.weights)
    damage(path)
    with pytest.raises(ModelError, match=r"models\.npz"):
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


def test_a_run_trains_every_metric_it_has_samples_of() -> None:
    config = config_for(metric("load"), metric("missing"))
    out = io.StringIO()
    bundle = train_bundle({"load": healthy_windows()}, config, QUICK, out)
    assert ["load"] == list(bundle.weights)
    made = bundle.cards["load"]
    assert ("load", "ratio", (0, 1), 8) == (
        made.metric,
        made.unit,
        made.bounds,
        made.window_length,
    )
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("load ")
    assert "windows, held-out mean squared error" in lines[0]
    assert ["missing", "no", "samples,"] == lines[1].split()[:3]
    assert "\r" not in out.getvalue()


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_bar_is_redrawn_in_place() -> None:
    out = Terminal()
    train_bundle({"load": healthy_windows()}, config_for(metric("load")), QUICK, out)
    assert "[########################] 30/30 loss" in out.getvalue()
    assert out.getvalue().split("\r")[-1].startswith("load ")


def test_a_run_says_which_metric_cannot_be_trained() -> None:
    with pytest.raises(TrainingError, match=r"Metric 'load': .* too few"):
        train_bundle(
            {"load": np.zeros((3, 8), np.float32)},
            config_for(metric("load")),
            QUICK,
            io.StringIO(),
        )
