"""What is right to do about each mechanism: its texts agree, or the corpus has a mistake."""

from __future__ import annotations

from peerwatch_responder.retry.corpus.read import shipped
from peerwatch_responder.retry.corpus.text import CorpusError, Label


def labels_of_mechanisms() -> dict[str, tuple[Label, bool]]:
    """Return the label of each mechanism, and whether it is deterministic.

    Raises
    ------
    CorpusError
        If two texts of one mechanism differ.
    """
    labels: dict[str, tuple[Label, bool]] = {}
    for text in shipped():
        said = (text.label, text.deterministic)
        if labels.setdefault(text.mechanism, said) != said:
            raise CorpusError(f"{text.id}: other texts of {text.mechanism} are labelled otherwise.")
    return labels
