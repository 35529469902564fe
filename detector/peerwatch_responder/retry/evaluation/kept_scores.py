"""The scores of folds in a file, so that a long evaluation goes on where it was broken off."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from peerwatch_common.errors import PeerwatchError

if TYPE_CHECKING:
    from pathlib import Path

Scores = dict[str, list[float]]


class KeptScoresError(PeerwatchError):
    """The file cannot be read or written; the message says why and what to do."""


class KeptScores:
    """The folds of one evaluation among the lines of a file.

    Parameters
    ----------
    path
        The file; it is made if it is not there. None: nothing is kept.
    key
        Of the corpus and the settings; lines of others are left alone.

    Raises
    ------
    KeptScoresError
        If it cannot be written, or holds something else.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self._key = path, key
        self._torn = False
        self.folds: dict[str, Scores] = {} if path is None else self._read(path)

    def add(self, fold: str, scores: Scores) -> None:
        """Keep the scores of a fold.

        Raises
        ------
        KeptScoresError
            If they cannot be written.
        """
        self.folds[fold] = scores
        if self._path is None:
            return
        row = json.dumps({"key": self._key, "fold": fold, "scores": scores})
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n" * self._torn + row + "\n")
        except OSError as error:
            raise KeptScoresError(f"{self._path}: cannot be written: {error.strerror}.") from error
        self._torn = False

    def _read(self, path: Path) -> dict[str, Scores]:
        try:
            # For writing, too: after hours of work it is too late to find that it cannot be.
            with path.open("a+", encoding="utf-8", errors="replace") as file:
                file.seek(0)
                text = file.read()
        except OSError as error:
            raise KeptScoresError(f"{path}: cannot be written: {error.strerror}.") from error
        lines = text.split("\n")
        self._torn = lines[-1] != ""
        rows = [self._row(path, line) for line in lines[:-1] if line]
        return {row["fold"]: row["scores"] for row in rows if row.get("key") == self._key}

    @staticmethod
    def _row(path: Path, line: str) -> dict[str, Any]:
        try:
            row: Any = json.loads(line)
        except ValueError:
            # Broken off in the middle, and gone on with after it.
            return {}
        if not isinstance(row, dict) or row.keys() != {"key", "fold", "scores"}:
            raise KeptScoresError(
                f"{path}: holds no scores of folds; remove it, or name another file."
            )
        return row
