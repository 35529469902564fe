"""Method minder's variant INT: one model of all metrics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from detector.detection.test_minder import found, rough, several
from detector.fakes import Replay, healthy, shifted
from peerwatch_detector.errors import ModelError
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.models.integrated import IntegratedLstmVae
from peerwatch_detector.models.lstm_vae import Weights


def as_one_model(levels: dict[str, float], embed: Callable | None = None) -> IntegratedLstmVae:
    """Return a model of all metrics that gives back what it reads, or what ``embed`` says."""
    model = IntegratedLstmVae(untrained(len(levels)), "reconstruction", levels)
    model.embed = embed or (lambda windows: windows.reshape(len(windows), 8 * len(levels)))
    return model


def untrained(inputs: int) -> Weights:
    rng = np.random.default_rng(0)
    shapes = {
        "encoder_input": (16, inputs),
        "encoder_hidden": (16, 4),
        "encoder_bias": (16,),
        "mean_weight": (8, 4),
        "mean_bias": (8,),
        "expand_weight": (4, 8),
        "expand_bias": (4,),
        "decoder_input": (16, 4),
        "decoder_hidden": (16, 4),
        "decoder_bias": (16,),
        "output_weight": (inputs, 4),
        "output_bias": (inputs,),
    }
    drawn = {name: rng.normal(0, 0.5, shape) for name, shape in shapes.items()}
    return Weights(**{name: array.astype(np.float32) for name, array in drawn.items()})


def integrated(values: dict[str, np.ndarray], model: IntegratedLstmVae) -> Replay:
    config = several(*values, minder={"join": "integrated"})
    return Replay(config, values, models={INTEGRATED: model})


@pytest.mark.parametrize(("seed", "nodes", "cycle"), [(0, 6, 1), (1, 8, 7), (2, 9, 150)])
def test_one_model_of_all_metrics_evaluates_their_windows_together(
    seed: int, nodes: int, cycle: int
) -> None:
    values = rough(nodes, 150, seed)
    # A model that changes nothing makes of it what the slow version finds by joined windows.
    replay = integrated(values, as_one_model(dict.fromkeys(values, 0.5)))
    replay.run(cycle=cycle)
    joined = Replay(several(*values, minder={"join": "concatenated"}), values)
    joined.run(cycle=cycle)
    assert found(joined) == found(replay)
    assert 0 < len(found(replay))


def test_the_model_of_all_metrics_reads_scaled_windows_in_the_order_of_its_inputs() -> None:
    seen: list[np.ndarray] = []

    def embed(windows: np.ndarray) -> np.ndarray:
        seen.append(windows)
        return windows[:, :, 0]

    values = {"load": healthy(6, 60, level=0.2), "power": healthy(6, 60, level=0.8)}
    values["nothing"] = np.full((6, 60), np.nan, np.float32)
    model = as_one_model({"power": 0.1, "nothing": 0.25, "other": 0.75, "load": 0.1}, embed)
    integrated(values, model).run(cycle=60)
    windows = np.concatenate(seen)
    assert (6 * 53, 8, 4) == windows.shape
    means = windows.mean(axis=(0, 1))
    np.testing.assert_allclose([0.8, 0.25, 0.75, 0.2], means, atol=0.02)
    np.testing.assert_allclose(values["power"][:, :8], windows[:6, :, 0], atol=1e-6)


def test_a_node_that_one_model_sets_apart_is_named_by_the_metric_that_shows_it() -> None:
    values = {"load": healthy(8, 600), "power": shifted(8, 600, {5: 0.3}, 1)}
    model = as_one_model({"load": 0.5, "power": 0.5})
    assert [("node-05", "power")] == [
        (finding.node, finding.metric) for finding in integrated(values, model).run()
    ]
    # A model that sees no difference leaves nobody to name.
    indifferent = as_one_model({"load": 0.5, "power": 0.5}, lambda windows: windows[:, :, 0] * 0)
    assert [] == integrated(values, indifferent).run()


def test_without_a_model_of_all_metrics_the_variant_int_is_refused() -> None:
    replay = Replay(several("load", minder={"join": "integrated"}), {"load": healthy(6, 60)})
    with pytest.raises(ModelError, match="train --integrated"):
        replay.run()
