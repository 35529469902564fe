"""Reads labelled logs: those that are shipped, and files of a site's own."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_responder.retry.corpus.text import LABELS, ORIGINS, CorpusError, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parent
_NAMES = {field.name for field in fields(Text)}


def shipped() -> list[Text]:
    """Return all texts of the corpus, in the order of its files."""
    return read_files(sorted(FOLDER.glob("*.jsonl")))


def read_files(paths: Iterable[Path]) -> list[Text]:
    """Return the texts of some files.

    Raises
    ------
    CorpusError
        If a file cannot be read, a line is no text of the corpus, or two have one id.
    """
    texts: dict[str, Text] = {}
    for path in paths:
        for number, line in enumerate(_lines(path), start=1):
            text = _text(line, f"{path}:{number}")
            if text.id in texts:
                raise CorpusError(f"{path}:{number}: id {text.id!r} is there twice; rename one.")
            texts[text.id] = text
    return list(texts.values())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: cannot be read: {error}.") from error


def _text(line: str, where: str) -> Text:
    try:
        held: Any = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{where}: is no JSON ({error}); one object on a line is read.") from None
    if not isinstance(held, dict) or held.keys() != _NAMES:
        names = ", ".join(sorted(_NAMES))
        raise CorpusError(f"{where}: needs exactly the fields {names}.")
    if held["label"] not in LABELS:
        raise CorpusError(f"{where}: label {held['label']!r} is none of {', '.join(LABELS)}.")
    if held["origin"] not in ORIGINS:
        raise CorpusError(f"{where}: origin {held['origin']!r} is none of {', '.join(ORIGINS)}.")
    if not isinstance(held["deterministic"], bool):
        raise CorpusError(f"{where}: deterministic is true or false.")
    if not all(isinstance(held[name], str) and held[name] for name in ("id", "mechanism", "text")):
        raise CorpusError(f"{where}: id, mechanism and text are texts that are not empty.")
    return Text(**held)
