"""Models in a file: NumPy's .npz with plain arrays, never pickled objects."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
import zlib
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.retry.model.calibration import Calibration
from peerwatch_responder.retry.model.ensemble import Ensemble
from peerwatch_responder.retry.model.linear import LinearModel
from peerwatch_responder.retry.model.ngrams import NGrams
from peerwatch_responder.retry.model.recurrent import AttentionGru, Lstm
from peerwatch_responder.retry.model.vectors import WordVectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

SHIPPED = Path(__file__).with_name("shipped.npz")
ModelName = Literal["tfidf", "sibylla"]
# Of the file, counted from 1.
_FORMAT = 1
_NETWORKS: tuple[type[Lstm | AttentionGru], ...] = (Lstm, AttentionGru)
_DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)

Arrays = dict[str, "NDArray[Any]"]


class ModelFileError(PeerwatchError):
    """A file of models cannot be read or written; the message says why and what to do."""


def save_models(path: Path, linear: LinearModel, ensemble: Ensemble | None) -> None:
    """Write models to a file; what is there before stays whole until the new one is.

    Raises
    ------
    ModelFileError
        If it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            held: Any = arrays_of(linear, ensemble)
            np.savez_compressed(file, **held)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ModelFileError(f"{path}: cannot be written: {error.strerror}.") from error


def load_model(path: Path = SHIPPED, name: ModelName = "tfidf") -> LinearModel | Ensemble:
    """Return a model of a file.

    Parameters
    ----------
    path
        The file; without it what is shipped.
    name
        ``tfidf``, or ``sibylla``, which is there only where it was learnt.

    Raises
    ------
    ModelFileError
        If it cannot be read, or has no such model.
    """
    held = dict(_read(path, path.stat().st_mtime_ns if path.exists() else 0))
    if int(held["format"]) != _FORMAT:
        raise ModelFileError(
            f"{path}: has format {int(held['format'])}, known is {_FORMAT}; "
            "learn it again with this version."
        )
    if f"{name}.names" not in held:
        raise ModelFileError(
            f"{path}: has no model {name}; peerwatch-responder learn --neural makes one."
        )
    try:
        return _linear(held) if name == "tfidf" else _ensemble(held)
    except _DAMAGED as error:
        raise ModelFileError(f"{path}: is damaged ({error}); learn it again.") from error


def arrays_of(linear: LinearModel, ensemble: Ensemble | None) -> Arrays:
    """Return all that a file of models holds."""
    held: Arrays = {
        "format": np.array(_FORMAT),
        "tfidf.names": _packed(linear.ngrams.names),
        "tfidf.idf": linear.ngrams.weights,
        "tfidf.weights": linear.weights,
        "tfidf.intercept": np.array(linear.intercept),
        "tfidf.calibration": _line(linear.calibration),
        "tfidf.stops_below": np.array(linear.stops_below),
    }
    if ensemble is not None:
        held |= {
            "sibylla.names": _packed(ensemble.vectors.names),
            "sibylla.idf": ensemble.vectors.weights,
            "sibylla.vectors": ensemble.vectors.vectors,
            "sibylla.calibration": _line(ensemble.calibration),
            "sibylla.stops_below": np.array(ensemble.stops_below),
        }
        for network in ensemble.classifiers:
            kind = type(network)
            for each in fields(kind):  # type: ignore[arg-type]
                held[f"{kind.__name__}.{each.name}"] = getattr(network, each.name)
    return held


def digest(held: Mapping[str, NDArray[Any]]) -> str:
    """Return what two equal files of models have in common, whenever they were written."""
    found = hashlib.sha256()
    for name in sorted(held):
        found.update(name.encode())
        found.update(np.ascontiguousarray(held[name]).tobytes())
    return found.hexdigest()[:16]


# One, so that files which are learnt anew do not pile up in a responder that runs for months.
@lru_cache(maxsize=1)
def _read(path: Path, _changed: int) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
            held["format"] = np.array(int(held["format"]))
    except _DAMAGED as error:
        raise ModelFileError(
            f"{path}: cannot be read ({error}); peerwatch-responder learn makes such a file."
        ) from error
    return held


def _linear(held: Arrays) -> LinearModel:
    return LinearModel(
        NGrams(_unpacked(held["tfidf.names"]), held["tfidf.idf"]),
        held["tfidf.weights"],
        float(held["tfidf.intercept"]),
        Calibration(*map(float, held["tfidf.calibration"])),
        _limit(held, "tfidf"),
    )


def _ensemble(held: Arrays) -> Ensemble:
    vectors = WordVectors(
        _unpacked(held["sibylla.names"]), held["sibylla.idf"], held["sibylla.vectors"]
    )
    networks = tuple(
        kind(**{each.name: held[f"{kind.__name__}.{each.name}"] for each in fields(kind)})
        for kind in _NETWORKS
    )
    return Ensemble(
        vectors,
        networks,
        Calibration(*map(float, held["sibylla.calibration"])),
        _limit(held, "sibylla"),
    )


def _limit(held: Arrays, name: str) -> float:
    """Return the chance below which a job is stopped; 0 (none is) where none was learnt."""
    return float(held.get(f"{name}.stops_below", 0.0))


def _line(calibration: Calibration) -> NDArray[np.float64]:
    return np.array([calibration.slope, calibration.intercept])


def _packed(names: tuple[str, ...]) -> NDArray[np.uint8]:
    return np.frombuffer("\n".join(names).encode(), np.uint8)


def _unpacked(packed: NDArray[np.uint8]) -> tuple[str, ...]:
    text = packed.tobytes().decode()
    return tuple(text.split("\n")) if text else ()
