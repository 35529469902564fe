"""How far a training has come, in a file beside its output, so that it can be taken up again.

The file knows what it was a training of: with other data, options or versions it would end at a
mixture of two trainings, so it is put aside then.
"""

from __future__ import annotations

import pickle
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from peerwatch_detector.errors import DAMAGED_ARCHIVE, ModelError
from peerwatch_detector.models.lstm_vae import Weights
from peerwatch_detector.training.fit import Quality, State, Trained

# Counts the layouts of checkpoints.
_FORMAT = 1


class Checkpoint:
    """The models done, refused and half done of one training.

    Parameters
    ----------
    path
        The file.
    key
        What the training depends on, by what it is called.
    """

    def __init__(self, path: Path, key: dict[str, str]) -> None:
        self.path = path
        self.key = key
        self.done: dict[str, Trained] = {}
        self.refused: dict[str, str] = {}
        self._running: tuple[str, State] | None = None

    def resume(self) -> str:
        """Take over what the file holds; returns a line about it, or nothing."""
        if not self.path.exists():
            return ""
        try:
            held = torch.load(self.path, map_location="cpu", weights_only=True)
            if held["format"] != _FORMAT:
                return f"{self.path}: written by another version; training starts anew."
            if changed := _changes(held["key"], self.key):
                return (
                    f"{self.path}: of another training, with other {', '.join(changed)}; this one "
                    "starts anew."
                )
            done = {name: _trained(about) for name, about in held["done"].items()}
            running = held["running"]
            self.done, self.refused = done, dict(held["refused"])
            self._running = (running["name"], running["state"]) if running else None
        except (*DAMAGED_ARCHIVE, OSError, pickle.UnpicklingError) as error:
            return f"{self.path}: cannot be read ({error.__class__.__name__}); starts anew."
        finished = len(self.done) + len(self.refused)
        half = f", {self._running[0]} half done" if self._running else ""
        return f"{self.path}: goes on where a training ended, with {finished} models done{half}."

    def state(self, name: str) -> State | None:
        """Return the state of a model that was half done, if it is this one."""
        return self._running[1] if self._running and self._running[0] == name else None

    def keep_state(self, name: str, state: State) -> None:
        """Write down a model half done."""
        self._running = (name, state)
        self._write()

    def leave(self) -> None:
        """Write down that no model is half done: the last one is done or refused."""
        self._running = None
        self._write()

    def remove(self) -> None:
        """Forget the training: its output is written."""
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        running = self._running
        held = {
            "format": _FORMAT,
            "key": self.key,
            "done": {name: _plain(trained) for name, trained in self.done.items()},
            "refused": self.refused,
            "running": {"name": running[0], "state": running[1]} if running else None,
        }
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            with partial.open("wb") as file:
                torch.save(held, file)
            partial.replace(self.path)
        except OSError as error:
            raise ModelError(f"{self.path}: cannot be written: {error.strerror}.") from error


def _changes(held: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Return what two trainings differ in."""
    return sorted(
        name for name in held.keys() | wanted.keys() if held.get(name) != wanted.get(name)
    )


def _plain(trained: Trained) -> dict[str, Any]:
    arrays = {field.name: getattr(trained.weights, field.name) for field in fields(Weights)}
    return {
        "weights": {name: torch.from_numpy(array) for name, array in arrays.items()},
        "quality": asdict(trained.quality),
        "windows": trained.windows,
        "data_fingerprint": trained.data_fingerprint,
    }


def _trained(about: dict[str, Any]) -> Trained:
    weights = {
        name: np.asarray(array.numpy(), np.float32) for name, array in about["weights"].items()
    }
    return Trained(
        Weights(**weights),
        Quality(**about["quality"]),
        about["windows"],
        about["data_fingerprint"],
    )
