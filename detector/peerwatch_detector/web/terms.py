"""Terms with their meaning as a tooltip; the meanings are the glossary's."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from markupsafe import Markup, escape

# Written from docs/glossary.md by docs/generate.py.
FILE = "terms.json"


@cache
def meanings() -> dict[str, str]:
    """Return what each term means, by term."""
    text = resources.files("peerwatch_detector.web").joinpath(FILE).read_text(encoding="utf-8")
    return dict(json.loads(text))


def term(text: str, entry: str = "") -> Markup:
    """Return a word of the web UI with its meaning.

    Parameters
    ----------
    text
        What is written.
    entry
        The term of the glossary, where that is another word.

    Raises
    ------
    KeyError
        If the glossary does not have it.
    """
    meaning = meanings()[entry or text]
    return Markup('<abbr title="{}">{}</abbr>').format(escape(meaning), escape(text))
