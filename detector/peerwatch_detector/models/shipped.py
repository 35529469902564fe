"""The bundle in force: the one that ships with the package, one of the user's own, or none."""

from __future__ import annotations

from importlib import resources

from peerwatch_common.installation import source_folder
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ModelError
from peerwatch_detector.models.store import EMPTY, Bundle, load_bundle

FILE = "default.npz"


def shipped_bundle() -> Bundle:
    """Return the models that ship with the package; ``make models`` writes them.

    Raises
    ------
    ModelError
        If the file is missing or damaged.
    """
    with resources.as_file(resources.files("peerwatch_detector.models") / FILE) as path:
        try:
            return load_bundle(path)
        except ModelError as error:
            # Only a source folder has a Makefile.
            folder = source_folder()
            remedy = f"write them with `make -C {folder} models`" if folder else "train some"
            raise ModelError(
                f"The shipped models cannot be used: {error} Install peerwatch again, {remedy}, or "
                "do without: `models: none`."
            ) from error


def configured_bundle(config: DetectorConfig) -> tuple[Bundle, tuple[str, ...]]:
    """Return the models that a configuration asks for, and why shipped ones are left out.

    A bundle of the user's own must fit: whoever trained it wants it used. The shipped one was
    made for the shipped metrics; a metric that is configured otherwise does without.

    Raises
    ------
    ModelError
        If the bundle cannot be read, or if it is the user's own and does not fit.
    """
    if config.models == "none":
        return EMPTY, ()
    # Every method's metrics: `evaluate` compares several with the same models.
    metrics = {
        metric.name: metric
        for method in ("peerwatch", "minder")
        for metric in config.model_copy(update={"method": method}).detection_metrics()
    }
    if config.models == "default":
        return shipped_bundle().fitting(metrics.values(), config.window_length)
    bundle = load_bundle(config.models)
    _, reasons = bundle.fitting(metrics.values(), config.window_length)
    if reasons:
        raise ModelError(f"{config.models}: {reasons[0]}")
    return bundle, ()
