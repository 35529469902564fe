"""Words that may stand for one another in logs: an allow-list, and WordNet where it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from peerwatch_responder.retry.training.wordnet import WordNet

_FILE = Path(__file__).with_name("synonyms.yaml")


def load_synonyms(wordnet: WordNet | None = None) -> dict[str, tuple[str, ...]]:
    """Return what may stand for each word.

    Parameters
    ----------
    wordnet
        Where further ones come from, for the words that the list allows it for; None: from nowhere.
        What is not installed adds nothing.
    """
    held: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for group in held["groups"]:
        for word in group:
            found.setdefault(word, []).extend(other for other in group if other != word)
    if wordnet is not None and wordnet.is_installed:
        for kind, words in held["wordnet"].items():
            for word in words:
                found.setdefault(word, []).extend(wordnet.synonyms(word, kind))
    return {word: tuple(sorted(set(others))) for word, others in found.items() if others}
