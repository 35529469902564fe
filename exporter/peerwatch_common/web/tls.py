"""TLS as the web configuration asks for it, on OpenSSL; loaded only where it does."""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from peerwatch_common.web.settings import TlsSettings

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
# Always offered with TLS 1.3, in Go as in OpenSSL.
_TLS13_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
# Those with forward secrecy and authenticated encryption, by the names that Go gives them.
_TLS12_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}


class UnknownClientError(OSError):
    """The client's certificate is valid, but names nobody who is let in."""


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the server side of TLS.

    Parameters
    ----------
    settings
        With absolute paths.

    Raises
    ------
    ConfigError
        With every mistake: unreadable files, a key of another certificate, unknown ciphers.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Clients that offer HTTP/2 as well learn here which protocol is spoken.
    context.set_alpn_protocols(["http/1.1"])
    mistakes = [
        *_load_pair(context, settings),
        *_load_clients(context, settings),
        *_set_ciphers(context, settings),
    ]
    context.maximum_version = _VERSIONS[settings.max_version]
    if settings.curve_preferences:
        context.set_ecdh_curve(_CURVES[settings.curve_preferences[0]])
    if not settings.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if mistakes:
        raise ConfigError([f"tls_server_config.{mistake}" for mistake in mistakes])
    return context


def _readable(name: str, path: str) -> list[str]:
    try:
        Path(path).read_bytes()
    except OSError as error:
        return [f"{name}: {path}: cannot be read: {error.strerror}"]
    return []


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> list[str]:
    mistakes = []
    for name in ("cert_file", "key_file"):
        if path := getattr(settings, name):
            mistakes += _readable(name, path)
    if mistakes:
        return mistakes
    with contextlib.ExitStack() as open_files:
        certificate = settings.cert_file or open_files.enter_context(_file_of(settings.cert))
        key = settings.key_file or open_files.enter_context(_file_of(settings.key))
        asked: list[bool] = []

        def no_password() -> bytes:
            # Without this OpenSSL would ask for it on the terminal.
            asked.append(True)
            return b""

        try:
            context.load_cert_chain(certificate, key, password=no_password)
        except (OSError, ValueError) as error:
            return [_pair_mistake(error, settings, protected=bool(asked))]
    return []


@contextlib.contextmanager
def _file_of(content: str) -> Iterator[str]:
    """Lend a file in memory: OpenSSL reads files only, and a key must never touch a disk."""
    descriptor = os.memfd_create("peerwatch-tls")
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file.write(content.encode())
        yield f"/proc/self/fd/{descriptor}"


def _pair_mistake(error: Exception, settings: TlsSettings, *, protected: bool) -> str:
    certificate = settings.cert_file or "the inline certificate"
    key = settings.key_file or "the inline key"
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"key_file: {key} is not the key of {certificate}"
    if protected:
        return f"key_file: {key} is protected by a password, which cannot be given"
    return (
        f"cert_file: {certificate} and {key} are not a certificate and its key in PEM "
        f"({reason or type(error).__name__})"
    )


def _load_clients(context: ssl.SSLContext, settings: TlsSettings) -> list[str]:
    if not settings.verifies_clients:
        return []
    required = settings.client_auth_type == "RequireAndVerifyClientCert"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    name = "client_ca_file" if settings.client_ca_file else "client_ca"
    if settings.client_ca_file and (mistakes := _readable(name, settings.client_ca_file)):
        return mistakes
    try:
        context.load_verify_locations(
            cafile=settings.client_ca_file or None, cadata=settings.client_ca or None
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        return [f"{name}: {settings.client_ca_file} holds no certificates in PEM ({reason})"]
    return []


def _set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> list[str]:
    context.minimum_version = _VERSIONS[settings.min_version]
    if not settings.cipher_suites:
        return []
    wanted = [suite for suite in settings.cipher_suites if suite not in _TLS13_SUITES]
    known = ", ".join([*sorted(_TLS13_SUITES), *_TLS12_SUITES])
    mistakes = [
        f"cipher_suites: unknown suite {suite!r}; there are {known}"
        for suite in wanted
        if suite not in _TLS12_SUITES
    ]
    if mistakes:
        return mistakes
    if wanted:
        context.set_ciphers(":".join(_TLS12_SUITES[suite] for suite in wanted))
    elif settings.max_version == "TLS12":
        return ["cipher_suites: none of them belongs to TLS 1.2, the only version allowed"]
    else:
        # Suites of TLS 1.3 only: no TLS 1.2 connection could be agreed on.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return []


def under_tls(connection: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Return the connection as it is to be under TLS, before the handshake."""
    return context.wrap_socket(
        connection, server_side=True, suppress_ragged_eofs=True, do_handshake_on_connect=False
    )


def handshake(connection: ssl.SSLSocket, allowed_sans: frozenset[str] | None) -> None:
    """Agree on keys, and see who the client is; the connection's timeout bounds all of it.

    Raises
    ------
    OSError
        If the client speaks no TLS, agrees on nothing, or may not come in.
    """
    connection.do_handshake()
    if allowed_sans is not None and not allowed_sans & _names(connection):
        raise UnknownClientError("the certificate names nobody of client_allowed_sans")


def _names(connection: ssl.SSLSocket) -> set[str]:
    certificate = connection.getpeercert() or {}
    entries = certificate.get("subjectAltName", ())
    kinds = {"DNS", "IP Address", "URI", "email"}
    return {str(entry[1]) for entry in entries if entry[0] in kinds}
