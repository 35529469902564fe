"""TLS, logins and headers in force now; follows the web configuration file as it changes.

A new version that is broken, or would take protection away, changes nothing: it is logged once and
``exporter_web_config_reload_failed`` reports it until it is repaired.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_common.errors import ConfigError
from peerwatch_common.web.rate import RateLimit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from peerwatch_common.web.facts import WebFacts
    from peerwatch_common.web.load import Loaded
    from peerwatch_common.web.passwords import Logins
    from peerwatch_common.web.settings import WebSettings

    _Stamp = tuple[int, int, int]

_LOG = logging.getLogger(__name__)

# How often the files are looked at. Chosen: soon after a change, at a stat of each file.
_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Security:
    """What is in force for a request.

    Parameters
    ----------
    context
        TLS; ``None`` for plain HTTP.
    allowed_sans
        Names of which a client's certificate must hold one; ``None`` for no such demand.
    logins
        Basic authentication; ``None`` lets everybody in.
    headers
        Added to every answer.
    limit
        Requests per time; ``None`` for no limit.
    """

    context: ssl.SSLContext | None = None
    allowed_sans: frozenset[str] | None = None
    logins: Logins | None = None
    headers: tuple[tuple[str, str], ...] = ()
    limit: RateLimit | None = None


class SecurityFile:
    """Security as a web configuration file has it, read anew when it or a file it names changes.

    Parameters
    ----------
    path
        The file; ``None`` for plain HTTP without logins.
    facts
        Told when a new version is broken.
    monotonic
        Seconds that only rise.

    Raises
    ------
    ConfigError
        With every mistake in the file, its certificate and its key.
    """

    def __init__(
        self,
        path: Path | None,
        facts: WebFacts,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._facts = facts
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._loaded: Loaded | None = None
        self._current = Security()
        self._last_check = monotonic()
        self._seen: dict[Path, _Stamp] = {}
        if path is not None:
            # Before reading: a change meanwhile shows at the next check.
            self._seen = {path: _stamp(path)}
            self._read(path)
            self._watch(path, self._seen)

    def current(self) -> Security:
        """Return what is in force now."""
        if self._path is not None and self._monotonic() - self._last_check >= _CHECK_SECONDS:
            self._check(self._path, force=False)
        return self._current

    def reload(self) -> None:
        """Read the files now, changed or not."""
        if self._path is not None:
            self._check(self._path, force=True)

    def _check(self, path: Path, *, force: bool) -> None:
        # One thread reads; the others go on with what is in force.
        if not self._lock.acquire(blocking=force):
            return
        try:
            self._last_check = self._monotonic()
            stamps = {watched: _stamp(watched) for watched in self._seen}
            if stamps != self._seen or force:
                self._try(path)
                self._watch(path, stamps)
        finally:
            self._lock.release()

    def _watch(self, path: Path, stamps: dict[Path, _Stamp]) -> None:
        """Remember how the files looked before they were read, with those newly named."""
        # Also those of a version not taken over: its key may be on the way.
        named = {path, *_named_files(path)}
        self._seen = {file: stamps.get(file) or _stamp(file) for file in named}

    def _try(self, path: Path) -> None:
        try:
            self._read(path)
        except ConfigError as error:
            # Before the log: who reads it there finds it among the metrics too.
            self._facts.reload_failed = True
            _LOG.error(
                "web configuration not taken over, the one before stays file=%s mistakes=%r",
                path,
                error.mistakes,
            )
            return
        self._facts.reload_failed = False
        _LOG.info("web configuration read file=%s", path)

    def _read(self, path: Path) -> None:
        # Here, not above: without a web configuration none of it is loaded.
        from peerwatch_common.web.load import load_web_settings  # noqa: PLC0415

        loaded = load_web_settings(path)
        before = self._loaded
        if before is not None:
            _refuse_weaker(before.settings, loaded.settings)
        self._current = _secured(loaded, before, self._current)
        self._loaded = loaded


def _named_files(path: Path) -> set[Path]:
    from peerwatch_common.web.load import named_files  # noqa: PLC0415

    return named_files(path)


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _refuse_weaker(before: WebSettings, now: WebSettings) -> None:
    """Refuse to drop protection in flight: half-written files look just like that."""
    mistakes = []
    if before.tls_server_config.enabled != now.tls_server_config.enabled:
        mistakes.append("tls_server_config: TLS is switched on or off by a restart only")
    if before.basic_auth_users and not now.basic_auth_users:
        mistakes.append("basic_auth_users: the last user is removed by a restart only")
    if mistakes:
        raise ConfigError(mistakes)


def _secured(loaded: Loaded, before: Loaded | None, current: Security) -> Security:
    settings = loaded.settings
    tls, users, rate = settings.tls_server_config, settings.basic_auth_users, settings.rate_limit
    logins = current.logins
    if before is None or before.settings.basic_auth_users != users:
        logins = _logins(users)
    limit = current.limit
    if before is None or before.settings.rate_limit != rate:
        limit = RateLimit(rate.interval_seconds, rate.burst) if rate.interval_seconds > 0 else None
    return Security(
        context=loaded.context,
        allowed_sans=frozenset(tls.client_allowed_sans) if tls.client_allowed_sans else None,
        logins=logins,
        headers=tuple(
            (name, value) for name, value in settings.http_server_config.headers.items() if value
        ),
        limit=limit,
    )


def _logins(users: dict[str, str]) -> Logins | None:
    if not users:
        return None
    from peerwatch_common.web.passwords import Logins  # noqa: PLC0415 - loads bcrypt

    return Logins(users)
