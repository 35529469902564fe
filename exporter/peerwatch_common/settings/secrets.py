"""Keeps passwords out of what is said about settings: texts end in terminals, logs and tickets."""

from __future__ import annotations

import re

# Whatever stands before the last @ of an address; a password may hold any character but a space.
_LOGIN = re.compile(r"(?<=//)[^\s'\"]*@")
_SECRET_KEY = re.compile(
    r"authori[sz]ation|cookie|credential|header|passw|private|secret|token|api[-_]?key",
    re.IGNORECASE,
)
# A key that ends so names where a secret is, or says something about it.
_NO_SECRET = re.compile(r"_(?:file|path|seconds)$", re.IGNORECASE)
_LONGEST_SHOWN = 200


def is_secret(key: str) -> bool:
    """Return whether a key's value is not to be shown, by the key's name."""
    return bool(_SECRET_KEY.search(key)) and not _NO_SECRET.search(key)


def without_logins(text: str) -> str:
    """Return a text without the users and passwords of the addresses in it."""
    return _LOGIN.sub("***@", text)


def shown(value: object) -> str:
    """Return a value as an error text repeats it: short, and without secrets."""
    text = without_logins(repr(_without_secrets(value)))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: "***" if is_secret(str(key)) else _without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return value
