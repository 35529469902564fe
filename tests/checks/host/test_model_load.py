"""Loading a model: from the disk, with the bits that were written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from peerwatch_checks.check import Context, Outcome
from peerwatch_checks.checks.host.model_load import ModelLoadOptions, load_layer, model_load

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path, load: Any = load_layer, *, path: str = "", **given: Any) -> Outcome:
    options = ModelLoadOptions(size_bytes=1024**2, path=path)
    context = Context(options, "n1", folder, 9.0, procfs=folder, rootfs=folder, **given)
    (outcome,) = model_load(context, load=load)
    return outcome


def test_a_model_is_loaded_and_leaves_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path)

    assert ("pass", "MB/s") == (outcome.status, outcome.unit)
    assert (outcome.value or 0) > 0
    assert [] == list(tmp_path.iterdir())


def test_a_model_that_loads_slowly_is_named(tmp_path: Path) -> None:
    def slow(path: Path) -> Any:
        time.sleep(0.3)
        return load_layer(path)

    # 1 MiB in more than two seconds.
    outcome = run(tmp_path, slow, peers={"": (10.0,) * 8})

    assert "fail" == outcome.status
    assert "the median of 8 peers is 10, the limit 5" in outcome.message


def test_one_flipped_bit_of_a_layer_is_found(tmp_path: Path) -> None:
    def flipping(path: Path) -> Any:
        layer = load_layer(path)
        layer[1234] ^= 1 if path.stem == "layer3" else 0
        return layer

    outcome = run(tmp_path, flipping)

    assert ("fail", "high") == (outcome.status, outcome.severity)
    assert "Layer layer3 of the model" in outcome.message


def test_a_folder_that_is_not_there_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    outcome = run(tmp_path, path="/none")

    assert "error" == outcome.status
    assert "Correct model_load.path" in outcome.message
