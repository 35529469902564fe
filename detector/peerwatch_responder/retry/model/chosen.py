"""The model that the settings choose, where there is one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from peerwatch_common.errors import PeerwatchError

if TYPE_CHECKING:
    from pathlib import Path

    from peerwatch_responder.retry.opinion import RetryModel


class NoModelError(PeerwatchError):
    """A model is asked for that cannot run here; the message says what to do."""


def chosen_model(name: str, path: Path | None = None) -> RetryModel | None:
    """Return a model.

    Parameters
    ----------
    name
        ``tfidf``, ``sibylla``, or ``none``.
    path
        A file of models; None: those that ship.

    Returns
    -------
    RetryModel or None
        None for ``none``, and where the default cannot run because NumPy is not installed.

    Raises
    ------
    PeerwatchError
        If the file cannot be read or has no such model, or NumPy is missing for one that was asked
        for.
    """
    if name == "none":
        return None
    if find_spec("numpy") is None:
        if name == "tfidf" and path is None:
            return None
        raise NoModelError(
            f"retry.model: {name} needs NumPy: pip install 'peerwatch[responder]', or set none."
        )
    from peerwatch_responder.retry.model.store import SHIPPED, load_model  # noqa: PLC0415 - NumPy

    return load_model(path or SHIPPED, "tfidf" if name == "tfidf" else "sibylla")
