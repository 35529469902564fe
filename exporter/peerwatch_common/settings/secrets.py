"""Keeps passwords out of what is said about settings: texts end in terminals, logs and tickets.

Here are all names by which secrets are known. How much is hidden differs by where a name stands:

- keys of settings (``is_secret``): a part of the key is enough, but plain ``key`` and ``auth`` are
  no secrets there, and a mistake must be found by its value;
- variables of ranks (``is_secret_variable``): whatever sounds like a secret is not published;
- texts (``NAMES_IN_TEXTS``): the whole name with a value behind it, since prose speaks of tokens.
"""

from __future__ import annotations

import re

# Whatever stands before the last @ of an address; a password may hold any character but a space.
_LOGIN = re.compile(r"(?<=//)[^\s'\"]*@")
# Regular expressions of names that are secrets wherever they stand.
_EVERYWHERE = (
    "access[-_]?key(?:[-_]?id)?",
    "account[-_]?key",
    "api[-_]?key",
    "authori[sz]ation",
    "client[-_]?secret",
    "cookie",
    "credential",
    "passphrase",
    "passw(?:or)?d",
    "private[-_]?key",
    "secret",
    "secret[-_]?key",
    "session[-_]?token",
    "token",
)
# As parts of keys and variables; of variables alone; as whole names in texts.
_IN_KEYS = ("bearer", "header", "passw", "private")
_IN_VARIABLES = ("auth", "key", "pass", "pwd", "signature")
_IN_TEXTS = ("auth", "auth[-_]?token", "bearer", "credentials", "pwd", "sig", "signature")
_SECRET_KEY = re.compile("|".join((*_EVERYWHERE, *_IN_KEYS)), re.IGNORECASE)
_SECRET_VARIABLE = re.compile("|".join((*_EVERYWHERE, *_IN_KEYS, *_IN_VARIABLES)), re.IGNORECASE)
# One expression, without groups of its own, for whoever looks for name and value.
NAMES_IN_TEXTS = "|".join((*_EVERYWHERE, *_IN_TEXTS))
# A key that ends so names where a secret is, or says something about it.
_NO_SECRET = re.compile(r"_(?:file|path|seconds)$", re.IGNORECASE)
# Chosen: a few lines of a terminal, in an error text that still can be read.
_LONGEST_SHOWN = 200


def is_secret(key: str) -> bool:
    """Return whether a key's value is not to be shown, by the key's name."""
    return bool(_SECRET_KEY.search(key)) and not _NO_SECRET.search(key)


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable may be a secret, by its name."""
    return bool(_SECRET_VARIABLE.search(name))


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
