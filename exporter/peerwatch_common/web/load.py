"""Reads a web configuration file and what it names, and tells every mistake at once.

Secrets (keys, password hashes) never stand in an error text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import mistake_of, mistakes_of
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_common.web.settings import TlsSettings, WebSettings

if TYPE_CHECKING:
    import ssl

_TLS = "tls_server_config"
_FILES = ("cert_file", "key_file", "client_ca_file")
_SECRET_KEYS = frozenset({"key", "cert", "client_ca", "basic_auth_users"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A web configuration without mistakes.

    Parameters
    ----------
    settings
        What the file says, with absolute paths.
    context
        The server side of TLS; ``None`` if it is not configured.
    """

    settings: WebSettings
    context: ssl.SSLContext | None


def load_web_settings(path: Path) -> Loaded:
    """Return what stands in a web configuration file.

    Parameters
    ----------
    path
        The YAML file; relative paths in it start at its directory.

    Raises
    ------
    ConfigError
        With every mistake in the file and in the files it names.
    """
    data = read_yaml(path)
    if isinstance(section := data.get(_TLS), dict):
        data = {**data, _TLS: _absolute(section, path)}
    try:
        settings = WebSettings.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        mistakes = mistakes_of(error, WebSettings, _SECRET_KEYS)
        mistakes += _tls_mistakes(data.get(_TLS), found)
    else:
        try:
            return Loaded(settings, _context(settings.tls_server_config))
        except ConfigError as error:
            mistakes = error.mistakes
    raise ConfigError([f"{path}: {mistake}" for mistake in mistakes])


def named_files(path: Path) -> set[Path]:
    """Return the certificates and keys that a file names; none if it cannot be read."""
    try:
        section = read_yaml(path).get(_TLS)
    except ConfigError:
        return set()
    if not isinstance(section, dict):
        return set()
    absolute = _absolute(section, path)
    return {Path(value) for name in _FILES if isinstance(value := absolute.get(name), str)}


def _absolute(section: dict[Any, Any], path: Path) -> dict[Any, Any]:
    """Join the section's relative paths with the directory of the file they stand in."""
    named = {name: section.get(name) for name in _FILES}
    joined = {
        name: str(path.absolute().parent / value)
        for name, value in named.items()
        if isinstance(value, str) and value
    }
    return {**section, **joined}


def _context(tls: TlsSettings) -> ssl.SSLContext | None:
    if not tls.enabled:
        return None
    from peerwatch_common.web.tls import make_context  # noqa: PLC0415 - 5 MiB

    return make_context(tls)


def _tls_mistakes(section: object, found: list[Any]) -> list[str]:
    """Return the mistakes in certificate and key that the file's own mistakes had hidden."""
    if not isinstance(section, dict):
        return []
    wrong = [item["loc"] for item in found if item["loc"][0] == _TLS]
    # Without one of its values, or as a whole wrong, nothing can be said about the rest.
    if any(len(place) < 2 or place[1] in TlsSettings.model_fields for place in wrong):
        return []
    known = {key: value for key, value in section.items() if key in TlsSettings.model_fields}
    try:
        _context(TlsSettings.model_validate(known))
    except ValidationError as error:
        items = error.errors(include_url=False)
        placed = [{**item, "loc": (_TLS, *item["loc"])} for item in items]
        return [mistake_of(item, WebSettings, _SECRET_KEYS) for item in placed]
    except ConfigError as error:
        return error.mistakes
    return []
