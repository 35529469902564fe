"""Makes the text of an error fit to be published: short, on one line, without what is private."""

from __future__ import annotations

import re

from peerwatch_common.logs import one_line
from peerwatch_common.settings.secrets import NAMES_IN_TEXTS

# Chosen: a sentence or two, as the longest labels have (label_length.py).
LONGEST = 300
# Before redaction: chosen, four times what the matcher keeps of a line (matcher.py).
_LONGEST_READ = 4096

# In this order: what an earlier one replaced is not seen by later ones.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]{1,40}KEY-----.*", re.DOTALL), "<key>"),
    # Whatever stands before the last @ of an address.
    (re.compile(r"(?<=://)[^\s'\"]{1,512}@"), "<login>@"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"), "<token>"),
    (
        re.compile(
            r"\b(?:hf_|sk-|pk-|rk_live_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|"
            r"nvapi-|dop_v1_|wandb_v1_)[\w-]{8,}"
        ),
        "<token>",
    ),
    (re.compile(r"\b(Bearer|Basic|Token) +[\w.~+/=-]{8,}", re.IGNORECASE), r"\1 <secret>"),
    (
        re.compile(
            rf"((?:\b|_)(?:{NAMES_IN_TEXTS})['\"]?\s{{0,3}}[=:]\s{{0,3}})"
            r"(?!\s|<)(?:\"[^\"]*\"|'[^']*'|[^\s,;&'\"}})]+)",
            re.IGNORECASE,
        ),
        r"\1<secret>",
    ),
    (re.compile(rf"(--(?:{NAMES_IN_TEXTS})\s)\S+", re.IGNORECASE), r"\1<secret>"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b"), "<email>"),
    (re.compile(r"(/(?:home|Users|users)/)[^/\s:'\",)]{1,64}"), r"\1<user>"),
    (re.compile(r"\b(?:0x)?[0-9a-fA-F]{24,}\b"), "<hex>"),
    # A long word with letters in both cases and digits: no path, no name of a function.
    (
        re.compile(
            r"(?<![\w/+.-])(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])(?=[\w+-]*\d)[\w+-]{32,}={0,2}(?![\w/.])"
        ),
        "<base64>",
    ),
    (
        re.compile(r"(?<![\w/+.-])(?=[\w+/]*[a-z])(?=[\w+/]*[A-Z])(?=[\w+/]*\d)[\w+/]{40,}={1,2}"),
        "<base64>",
    ),
)


def redacted(text: bytes, longest: int = LONGEST) -> str:
    """Return a text without passwords, tokens, keys, e-mail addresses and names of users.

    Parameters
    ----------
    text
        Of a log; bytes that are no UTF-8 are replaced.
    longest
        Characters that are kept at most, the mark of what was cut off among them.
    """
    result = one_line(text[:_LONGEST_READ].decode("utf-8", "replace")).strip()
    for form, replacement in _RULES:
        result = form.sub(replacement, result)
    return result if len(result) <= longest else f"{result[: longest - 3]}..."
