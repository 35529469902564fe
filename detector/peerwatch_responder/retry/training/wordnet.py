"""Reads synonyms from WordNet's files, as Debian's package wordnet-base has them.

Format: wndb(5) of WordNet 3.0. ``index.<kind>`` has a line for each word, in order, with the
offsets of its meanings in ``data.<kind>``, the most frequent first; a line there has the words of
one meaning.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("/usr/share/wordnet")
_KINDS = ("verb", "noun", "adj", "adv")


class WordNet:
    """The synonyms of words.

    Parameters
    ----------
    folder
        With WordNet's files.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._offsets: dict[str, dict[str, int]] = {}

    @property
    def is_installed(self) -> bool:
        """Whether its files are there."""
        return all(
            (self._folder / f"{part}.{kind}").exists()
            for part in ("index", "data")
            for kind in _KINDS
        )

    def synonyms(self, word: str, kind: str) -> list[str]:
        """Return the other single words of a word's most frequent meaning.

        Parameters
        ----------
        word
            In lower case.
        kind
            ``verb``, ``noun``, ``adj`` or ``adv``.

        Raises
        ------
        OSError
            If the files cannot be read.
        """
        offset = self._index(kind).get(word)
        if offset is None:
            return []
        with (self._folder / f"data.{kind}").open("rb") as file:
            file.seek(offset)
            fields = file.readline().decode("ascii", "replace").split(" ")
        # offset, file, kind, how many words (hexadecimal), then each word and its number.
        words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        names = [each.lower().split("(")[0] for each in words]
        return [each for each in names if each != word and each.isalpha()]

    def _index(self, kind: str) -> dict[str, int]:
        if kind not in self._offsets:
            text = (self._folder / f"index.{kind}").read_text(encoding="ascii", errors="replace")
            self._offsets[kind] = dict(_first_meanings(text))
        return self._offsets[kind]


def _first_meanings(text: str) -> list[tuple[str, int]]:
    found = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue  # the licence
        # word kind meanings pointers pointer... meanings tagged offset...
        fields = line.split()
        found.append((fields[0], int(fields[6 + int(fields[3])])))
    return found
