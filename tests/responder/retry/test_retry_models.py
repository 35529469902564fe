"""The models that ship, and that NumPy computes what torch trained."""

import os

import numpy as np
import pytest

from peerwatch_responder.retry.model.calibration import Calibration, fit_calibration
from peerwatch_responder.retry.model.chosen import chosen_model
from peerwatch_responder.retry.model.store import SHIPPED, ModelFileError, load_model, save_models
from peerwatch_responder.retry.training.logistic import fit_logistic


def test_the_file_is_small():
    assert SHIPPED.stat().st_size < 2e6


@pytest.mark.parametrize("name", ["tfidf", "sibylla"])
def test_a_shipped_model_assesses_and_quotes(name):
    model = chosen_model(name)
    lines = [
        "step 10 loss 2.3",
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 3, in <module>',
        "TypeError: build_model() got an unexpected keyword argument 'layers'",
    ]
    stop = model.assess(lines)
    assert stop.retry < 0.5
    assert set(stop.lines) <= set(lines)
    assert stop.model == name
    assert model.assess(lines) == stop
    retry = model.assess(
        [
            "NCCL WARN connect to peer failed : Connection timed out",
            "remote peer closed the connection, network error",
        ]
    )
    assert retry.retry > 0.5
    assert model.assess(["zzqx vvkq"]) is None
    assert model.assess(["12 34", ""]) is None


def test_no_model_and_files_that_are_none(tmp_path):
    assert chosen_model("none") is None
    path = tmp_path / "model.npz"
    path.write_bytes(b"PK not an archive")
    with pytest.raises(ModelFileError, match="cannot be read"):
        load_model(path)


def test_a_damaged_file_is_said_to_be(tmp_path):
    path = tmp_path / "model.npz"
    data = SHIPPED.read_bytes()
    # Zipfile's and zlib's mistakes: which of the two depends on the byte.
    for number, at in enumerate(range(1000, 1400, 20)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        os.utime(path, ns=(number, number))
        with pytest.raises(ModelFileError, match="cannot be read"):
            load_model(path)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "model.npz").mkdir()
    with pytest.raises(ModelFileError, match="cannot be written"):
        save_models(tmp_path / "model.npz", load_model(), None)
    assert ["model.npz"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_numpy_computes_what_torch_does(kind):
    torch = pytest.importorskip("torch")
    from peerwatch_responder.retry.training.networks import make_network

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        network = make_network(kind, 16, 24, 0.5).eval()
        logs = [torch.randn(length, 16) for length in (1, 2, 7, 64)]
        padded = torch.nn.utils.rnn.pad_sequence(logs, batch_first=True)
        wanted = network(padded, torch.tensor([len(log) for log in logs])).numpy()
    found = [network.export().score(log.numpy()) for log in logs]
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.xdist_group("scikit-learn")
def test_the_logistic_regression_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 300)).astype(np.float32)
    truths = rng.random(40) < 0.4
    weights, intercept = fit_logistic(rows, truths, 0.5)
    reference = linear_model.LogisticRegression(C=2.0, tol=1e-8, max_iter=5000).fit(rows, truths)
    np.testing.assert_allclose(weights, reference.coef_[0], atol=2e-3)
    assert intercept == pytest.approx(reference.intercept_[0], abs=5e-3)


def test_a_calibration_gives_chances_that_come_true():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=4000) * 3
    truths = rng.random(4000) < 1 / (1 + np.exp(-(0.4 * scores + 0.2)))
    line = fit_calibration(scores, truths)
    assert line.slope == pytest.approx(0.4, abs=0.05)
    assert line.intercept == pytest.approx(0.2, abs=0.1)
    assert fit_calibration(scores, ~truths).slope == 0
    assert Calibration().chance(0.0) == 0.5
