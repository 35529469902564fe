from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import tqdm.std

from detector.fakes import FakeClock, config_for, metric
from detector.healthy_windows import healthy_windows
from peerwatch_detector import __version__
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ModelError, TrainingError
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.training.fit import TrainingOptions
from peerwatch_detector.training.healthy import HealthyWindows
from peerwatch_detector.training.progress import TrainingProgress
from peerwatch_detector.training.run import checkpoint_path, train_bundle

LAX = {"largest_error": 1.0, "largest_level_error": 1.0, "batch_size": 64}
QUICK = TrainingOptions(steps=30, **LAX)
# It is trained once, for all tests that go on with it.
WHOLE = pytest.mark.xdist_group("whole_run")


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def two() -> tuple[HealthyWindows, DetectorConfig]:
    gathered = HealthyWindows({"load": healthy_windows(), "power": healthy_windows(0.6, seed=1)})
    return gathered, config_for(metric("load"), metric("power"))


def test_a_run_trains_every_metric_it_has_samples_of() -> None:
    config = config_for(metric("load"), metric("missing"))
    out = io.StringIO()
    run = train_bundle(HealthyWindows({"load": healthy_windows()}), config, QUICK, out)
    assert ["load"] == list(run.bundle.weights)
    assert {} == run.refused
    made = run.bundle.cards["load"]
    assert ("load", "ratio", (0, 1), 8, len(healthy_windows())) == (
        made.metric,
        made.unit,
        made.bounds,
        made.window_length,
        made.windows,
    )
    assert made.reconstruction_error > 0
    assert made.variance > 0
    assert 30 == run.bundle.options["steps"]
    assert __version__ == run.bundle.package_version
    lines = out.getvalue().splitlines()
    assert ["missing", "no", "samples,"] == lines[0].split()[:3]
    assert re.fullmatch(
        r"load +\d+ windows, held-out mean squared error \S+ \(they hardly vary: \S+\)",
        lines[-1],
    )
    assert "\r" not in out.getvalue()


def test_a_metric_that_cannot_be_trained_costs_only_its_own_model() -> None:
    gathered, config = two()
    gathered["load"] = gathered["load"][:3]
    out = io.StringIO()
    run = train_bundle(gathered, config, QUICK, out)
    assert ["power"] == list(run.bundle.weights) == list(run.bundle.cards)
    assert ["load"] == list(run.refused)
    assert "3 complete windows are too few" in run.refused["load"]
    assert "no model: 3 complete windows are too few" in out.getvalue()


def test_samples_that_are_broken_are_not_trained_on() -> None:
    gathered, config = two()
    gathered.broken["power"] = "12.0% of the samples lie outside"
    run = train_bundle(gathered, config, QUICK, io.StringIO())
    assert {"power": "12.0% of the samples lie outside"} == run.refused
    assert ["load"] == list(run.bundle.cards)


def test_a_run_of_which_nothing_comes_says_why_of_every_metric() -> None:
    gathered = HealthyWindows({"load": np.zeros((3, 8), np.float32)})
    gathered["power"] = np.full((300, 8), 2, np.float32)
    with pytest.raises(TrainingError, match=r"Metric 'load': .* few .*Metric 'power': .* scale"):
        train_bundle(gathered, two()[1], QUICK, io.StringIO())


def test_the_model_of_all_metrics_is_one_more(tmp_path: Path) -> None:
    gathered, config = two()
    gathered[INTEGRATED] = np.stack([gathered["load"], gathered["power"]], axis=-1)
    bundle = train_bundle(gathered, config, QUICK, io.StringIO()).bundle
    assert {"load", "power", INTEGRATED} == bundle.weights.keys()
    assert {"load", "power"} == bundle.cards.keys()
    assert 2 == bundle.weights[INTEGRATED].inputs
    card = bundle.integrated
    assert card is not None
    assert (("load", "power"), ("ratio", "ratio"), ((0, 1), (0, 1))) == (
        card.metrics,
        card.units,
        card.bounds,
    )
    np.testing.assert_allclose(
        [gathered["load"].mean(), gathered["power"].mean()], card.levels, rtol=1e-5
    )
    bundle.save(tmp_path / "models.npz")
    assert (tmp_path / "models.npz").stat().st_size < 100_000


def interrupt(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
    """Interrupt when the progress of a model is shown for the n-th time."""
    whole, shown = TrainingProgress.show, []

    def show(progress: TrainingProgress, step: int, loss: float) -> None:
        shown.append(progress._name)
        if times == shown.count(name):
            raise KeyboardInterrupt
        whole(progress, step, loss)

    monkeypatch.setattr(TrainingProgress, "show", show)


LONGER = TrainingOptions(steps=125, **LAX)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "models.npz"
    train_bundle(*two(), LONGER, io.StringIO()).bundle.save(path)
    return path.read_bytes()


@WHOLE
@pytest.mark.parametrize(
    ("name", "times", "resumed_from"),
    [
        ("load", 5, "0 models done, load half done"),
        ("power", 1, "1 models done."),
        ("power", 5, "1 models done, power half done"),
    ],
    ids=["within the first", "between", "within the last"],
)
def test_an_interrupted_run_goes_on_and_gives_the_same_file(
    tmp_path: Path,
    whole: bytes,
    name: str,
    times: int,
    resumed_from: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "models.npz"
    checkpoint = checkpoint_path(output)
    # The fifth time is that of the last step, after a hundred were written down.
    with monkeypatch.context() as patched:
        interrupt(patched, name, times)
        with pytest.raises(KeyboardInterrupt):
            train_bundle(*two(), LONGER, io.StringIO(), checkpoint=checkpoint)
    assert [checkpoint] == list(tmp_path.iterdir())
    out = io.StringIO()
    train_bundle(*two(), LONGER, out, checkpoint=checkpoint).bundle.save(output)
    assert f"goes on where a training ended, with {resumed_from}" in out.getvalue()
    assert whole == output.read_bytes()


def other_options(gathered: HealthyWindows, config: DetectorConfig) -> tuple:
    return gathered, config, TrainingOptions(steps=30, seed=7, **LAX)


def other_data(gathered: HealthyWindows, config: DetectorConfig) -> tuple:
    return HealthyWindows(gathered | {"load": healthy_windows(seed=5)}), config, QUICK


def other_bounds(gathered: HealthyWindows, config: DetectorConfig) -> tuple:
    return gathered, config_for(metric("load"), metric("power", bounds=[0, 2])), QUICK


@pytest.mark.parametrize(
    ("change", "what"),
    [(other_options, "options"), (other_data, "data of load"), (other_bounds, "data of power")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_training_starts_anew_and_says_why(
    tmp_path: Path, change: Callable[[HealthyWindows, DetectorConfig], tuple], what: str
) -> None:
    checkpoint, out = tmp_path / "c", io.StringIO()
    train_bundle(*two(), QUICK, io.StringIO(), checkpoint=checkpoint)
    changed = change(*two())
    bundle = train_bundle(*changed, out, checkpoint=checkpoint).bundle
    assert f"of another training, with other {what}; this one starts anew" in out.getvalue()
    fresh = train_bundle(*changed, io.StringIO()).bundle
    assert fresh.cards == bundle.cards


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def of_another_kind(path: Path) -> None:
    torch.save([1, 2], path)


def half(path: Path) -> None:
    held = torch.load(path, weights_only=True)
    del held["done"]["load"]["quality"]
    torch.save(held, path)


@pytest.mark.parametrize("damage", [cut, nothing, of_another_kind, half], ids=lambda d: d.__name__)
def test_a_damaged_checkpoint_is_told_and_put_aside(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    checkpoint, out = tmp_path / "c", io.StringIO()
    first = train_bundle(*two(), QUICK, io.StringIO(), checkpoint=checkpoint).bundle
    damage(checkpoint)
    again = train_bundle(*two(), QUICK, out, checkpoint=checkpoint).bundle
    assert f"{checkpoint}: cannot be read" in out.getvalue()
    assert first.cards == again.cards


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be written: No such file"):
        train_bundle(*two(), QUICK, io.StringIO(), checkpoint=tmp_path / "nowhere" / "c")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock(0)
    monkeypatch.setattr(tqdm.std, "time", made)
    return made


def test_on_a_terminal_the_bar_is_redrawn_in_place(clock: FakeClock) -> None:
    out = Terminal()
    with TrainingProgress(out, 3, 1000) as progress:
        progress.begin("load")
        clock.advance(2)
        progress.show(250, 0.5)
        clock.advance(2)
        progress.show(500, 0.02)
        progress.end("done")
    shown = out.getvalue().split("\r")
    assert any(
        text.startswith("load 1/3: ")
        and "250/3000 [00:02<00:22, 125.00 step/s, loss 5.0e-01]" in text
        for text in shown
    )
    assert any("500/3000 [00:04<00:20, 125.00 step/s, loss 2.0e-02]" in text for text in shown)
    assert "load                   done\n" in out.getvalue()


def test_elsewhere_a_line_is_written_every_few_seconds(clock: FakeClock) -> None:
    out = io.StringIO()
    with TrainingProgress(out, 3, 1000) as progress:
        progress.begin("load")
        for step in range(100, 1001, 100):
            clock.advance(2)
            progress.show(step, 0.5)
    lines = out.getvalue().splitlines()
    assert ["300/3000", "600/3000", "900/3000"] == [line.split()[2] for line in lines]
    assert "load 1/3: 300/3000 50.00 step/s, 00:54 left, loss 5.0e-01" == lines[0]
    assert "\r" not in out.getvalue()


def test_the_time_left_does_not_count_models_taken_over_as_trained(clock: FakeClock) -> None:
    out = io.StringIO()
    with TrainingProgress(out, 3, 1000) as progress:
        progress.begin("load", done=1000)
        progress.end("done before")
        progress.begin("power", done=200)
        clock.advance(10)
        progress.show(300, 0.5)
    assert "power 2/3: 100/1800 10.00 step/s, 02:50 left" in out.getvalue().splitlines()[-1]


def test_a_model_that_is_trained_again_takes_its_steps_once_more(clock: FakeClock) -> None:
    out = io.StringIO()
    with TrainingProgress(out, 2, 1000) as progress:
        progress.begin("load")
        for step in (1000, 100):
            clock.advance(10)
            progress.show(step, 0.5)
        progress.end("no model")
    assert "load 1/2: 1100/3000" in out.getvalue().splitlines()[1]
