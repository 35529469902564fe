from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch

from detector.healthy_windows import healthy_windows, quiet, swinging_windows
from peerwatch_detector.errors import TrainingError
from peerwatch_detector.models.lstm_vae import LstmVae
from peerwatch_detector.training.examples import fingerprint, synthetic_windows
from peerwatch_detector.training.fit import (
    Quality,
    Trained,
    TrainingOptions,
    choose_device,
    train_model,
)

LAX = {"largest_error": 1.0, "largest_level_error": 1.0, "batch_size": 64}
QUICK = TrainingOptions(steps=30, **LAX)
# Each model is trained once, for all tests of it.
TRAINED = pytest.mark.xdist_group("trained")
UNINTERRUPTED = pytest.mark.xdist_group("uninterrupted")


def identity_of(trained: Trained) -> str:
    return LstmVae(trained.weights).fingerprint


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train_model(healthy_windows(), TrainingOptions(steps=600, seed=1), quiet)


@TRAINED
def test_training_rebuilds_windows_it_has_not_seen(trained: Trained) -> None:
    assert trained.quality.error < 5e-4
    assert trained.quality.level_error < 1e-3
    assert len(healthy_windows()) == trained.windows
    others = healthy_windows(seed=9)
    rebuilt = LstmVae(trained.weights).embed(others)
    assert float(np.mean((rebuilt - others) ** 2)) < 5e-4


@TRAINED
@pytest.mark.parametrize("level", [0.05, 0.6, 0.9])
def test_a_level_that_was_never_seen_is_not_mapped_back_to_health(
    trained: Trained, level: float
) -> None:
    rebuilt = LstmVae(trained.weights).embed(np.full((1, 8), level, np.float32))
    assert float(np.abs(rebuilt - level).max()) < 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_windows_that_swing_over_the_whole_scale_are_learned(seed: int) -> None:
    options = TrainingOptions(steps=500, seed=seed, attempts=1)
    quality = train_model(swinging_windows(), options, quiet).quality
    assert quality.variance > 0.1
    assert quality.error < 0.25 * quality.variance


def test_windows_of_several_metrics_are_learned_together() -> None:
    rng = np.random.default_rng(0)
    first, second = healthy_windows(0.3), healthy_windows(0.7, seed=1)
    cube = np.stack([first, second[rng.permutation(len(second))], 1 - first], axis=-1)
    options = TrainingOptions(steps=300, hidden=12, latent=12)
    found = train_model(cube, options, quiet)
    assert (3, 12, 12) == (
        found.weights.inputs,
        found.weights.encoder_hidden.shape[1],
        len(found.weights.mean_bias),
    )
    rebuilt = LstmVae(found.weights).embed(cube).reshape(cube.shape)
    assert float(np.mean((rebuilt - cube) ** 2)) < 1e-3


def test_training_is_repeatable_by_its_seed() -> None:
    given = healthy_windows()
    first, second = (train_model(given, QUICK, quiet) for _ in range(2))
    other = train_model(given, TrainingOptions(steps=30, seed=1, **LAX), quiet)
    assert identity_of(first) == identity_of(second)
    assert first.quality == second.quality
    assert identity_of(first) != identity_of(other)
    assert first.data_fingerprint == second.data_fingerprint == other.data_fingerprint


def test_training_leaves_torchs_randomness_and_threads_alone() -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    first = train_model(healthy_windows(), QUICK, quiet)
    assert torch.equal(state, torch.random.get_rng_state())
    assert threads == torch.get_num_threads()
    torch.rand(3)
    assert identity_of(first) == identity_of(train_model(healthy_windows(), QUICK, quiet))


def test_progress_is_told_up_to_the_last_step() -> None:
    reports: list[tuple[int, int]] = []
    train_model(healthy_windows(), QUICK, lambda step, steps, loss: reports.append((step, steps)))
    assert [(25, 30), (30, 30)] == reports


class StopError(Exception):
    """Somebody interrupts the training."""


# No attempt is good enough for this, so all are made.
STRICT = TrainingOptions(steps=120, attempts=2, batch_size=64, largest_error=0.0, largest_share=0.0)


@pytest.fixture(scope="module")
def uninterrupted() -> list[tuple[int, int, float]]:
    reports: list[tuple[int, int, float]] = []
    with pytest.raises(TrainingError, match="last of 2 attempts"):
        train_model(healthy_windows(), STRICT, lambda *now: reports.append(now))
    return reports


@UNINTERRUPTED
@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_training_taken_up_again_goes_the_same_way(
    uninterrupted: list[tuple[int, int, float]], stop_after: int
) -> None:
    kept: list[dict] = []

    def keep(state: dict) -> None:
        kept.append(copy.deepcopy(state))
        if len(kept) == stop_after:
            raise StopError

    with pytest.raises(StopError):
        train_model(healthy_windows(), STRICT, quiet, keep=keep)
    rest: list[tuple[int, int, float]] = []
    with pytest.raises(TrainingError):
        train_model(healthy_windows(), STRICT, lambda *now: rest.append(now), state=kept[-1])
    assert 0 < len(rest) < len(uninterrupted)
    assert uninterrupted[-len(rest) :] == rest


def test_a_second_attempt_is_made_from_other_first_weights() -> None:
    options = TrainingOptions(steps=30, attempts=3, largest_error=0.0, largest_share=0.0)
    losses: list[float] = []
    with pytest.raises(TrainingError, match="last of 3 attempts"):
        train_model(healthy_windows(), options, lambda step, _, loss: losses.append(loss))
    assert 6 == len(losses)
    assert 6 == len(set(losses))


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (np.zeros((199, 8), np.float32), "199 complete windows are too few .* 200"),
        (np.full((300, 8), np.nan, np.float32), "not finite"),
        (np.full((300, 8), 1.5, np.float32), "scale them to 0..1"),
        (np.full((300, 8), -0.1, np.float32), "scale them to 0..1"),
        (np.full((300, 8, 2), np.inf, np.float32), "not finite"),
    ],
)
def test_windows_that_cannot_train_are_refused(broken: np.ndarray, text: str) -> None:
    with pytest.raises(TrainingError, match=text):
        train_model(broken, QUICK, quiet)


def test_a_metric_that_never_changed_can_be_trained() -> None:
    options = TrainingOptions(steps=300, batch_size=64)
    found = train_model(np.zeros((300, 8), np.float32), options, quiet)
    assert 0 == found.quality.variance
    assert float(LstmVae(found.weights).embed(np.full((1, 8), 0.7, np.float32)).mean()) > 0.6


def test_a_model_that_learned_nothing_is_refused() -> None:
    options = TrainingOptions(steps=1, largest_error=1e-6, attempts=1)
    with pytest.raises(TrainingError, match=r"The model rebuilds held-out .* give more --steps"):
        train_model(healthy_windows(0.8), options, quiet)


QUALITIES = [
    (Quality(4e-4, 1e-6, 0), ""),
    (Quality(2.4e-2, 1e-1, 4e-3), ""),
    (Quality(2.6e-2, 1e-1, 0), "error of 2.6e-02 at a variance of 1.0e-01, at most 2.5e-02"),
    (Quality(6e-4, 1e-3, 0), "at most 5.0e-04"),
    (Quality(0, 1e-1, 6e-3), "moves the levels of windows with a mean squared error of 6.0e-03"),
    (Quality(float("nan"), 1e-1, 0), "error of nan"),
    (Quality(0, 1e-1, float("nan")), "error of nan"),
]


@pytest.mark.parametrize(("quality", "fault"), QUALITIES, ids=range(len(QUALITIES)))
def test_a_models_error_is_held_against_the_variance(quality: Quality, fault: str) -> None:
    found = quality.fault(TrainingOptions())
    assert fault in found
    assert bool(fault) == bool(found)


@pytest.mark.parametrize("steps", [0, -3])
def test_training_without_steps_is_refused(steps: int) -> None:
    with pytest.raises(TrainingError, match="steps"):
        train_model(healthy_windows(), TrainingOptions(steps=steps), quiet)


def test_held_out_windows_are_of_other_times_than_those_learned_from() -> None:
    # The last tenth of every stretch of time is unlike all before: were it seen, it would be known.
    count = 4000
    late = np.arange(count) * 100 // count % 10 == 9
    rng = np.random.default_rng(0)
    odd = rng.permutation(np.tile([0.0, 1.0], 4)).astype(np.float32)
    given = np.where(late[:, None], odd, np.float32(0.3)).astype(np.float32)
    given += rng.uniform(0, 1e-3, given.shape).astype(np.float32) * np.where(given > 0.5, -1, 1)
    options = TrainingOptions(steps=150, **LAX)
    assert train_model(given, options, quiet).quality.error > 0.05


def test_synthetic_windows_cover_the_whole_scale() -> None:
    real = healthy_windows()[:, :, None]
    drawn = synthetic_windows(real, np.random.default_rng(0))
    assert (len(real) // 2, 8, 1) == drawn.shape
    assert 0 <= drawn.min() < 0.05
    assert 0.95 < drawn.max() <= 1
    assert np.float32 == drawn.dtype


def test_in_a_synthetic_window_of_several_metrics_one_is_drawn() -> None:
    real = np.stack([np.full((50, 8), level, np.float32) for level in (0.2, 0.4)], axis=-1)
    drawn = synthetic_windows(real, np.random.default_rng(0))
    untouched = np.isclose(drawn, real[:1]).all(axis=1)
    assert (untouched.sum(axis=1) == 1).mean() > 0.99
    assert 0.3 < untouched[:, 0].mean() < 0.7
    np.testing.assert_array_equal(np.float32(0.2), real[..., 0])


def test_a_fingerprint_is_of_values_and_shape() -> None:
    given = healthy_windows()
    assert 12 == len(fingerprint(given))
    assert fingerprint(given) == fingerprint(given.copy())
    assert fingerprint(given) != fingerprint(given.reshape(-1, 4))
    assert fingerprint(given) != fingerprint(given[::-1])


def test_the_device_is_a_gpu_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert ["cuda", "cpu", "cuda"] == [choose_device(device) for device in ("auto", "cpu", "cuda")]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert ["cpu", "cpu"] == [choose_device(device) for device in ("auto", "cpu")]
    with pytest.raises(TrainingError, match=re.escape("--device cuda: torch ")) as caught:
        choose_device("cuda")
    assert "--device cpu" in str(caught.value)
