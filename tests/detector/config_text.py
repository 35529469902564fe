"""Configurations as text, and the mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_common.errors import ConfigError
from peerwatch_detector.config import load_config


def written(folder: Path, text: str) -> Path:
    path = folder / "detector.yaml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(written(folder, text))
    assert "\n".join(caught.value.mistakes) == str(caught.value)
    return caught.value.mistakes
