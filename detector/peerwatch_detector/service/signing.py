"""Addresses of pictures that open without a password, because they are signed and expire.

Whoever holds such an address sees one picture of one finding until it expires, and nothing else.
The signature is HMAC-SHA-256 over its parameters and expiry, by a key that only detectors have.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    from peerwatch_detector.config.service import PicturesConfig
    from peerwatch_detector.detection.findings import Finding

PATH = "/picture"
# The same picture for receivers that show no SVG: what opens the one opens the other.
PNG_PATH = "/picture.png"
_EXPIRES, _SIGNATURE = "expires", "signature"
# As long as what SHA-256 gives, as RFC 2104 wants it of an HMAC's key.
_LEAST_KEY_BYTES = 32


class SignatureError(ValueError):
    """The address is not one that was signed here, or has expired; the message says which."""


class Signer:
    """Signs the addresses of pictures, and checks them.

    Parameters
    ----------
    key
        At least 32 bytes.
    address
        Base of the addresses: how receivers of notifications reach this detector.
    lifetime_seconds
        A finding's address is valid for at least so long after the finding has begun, and for at
        most twice as long after it was published.
    """

    def __init__(self, key: bytes, address: str, lifetime_seconds: float) -> None:
        self._key = key
        self._address = address.rstrip("/")
        self._lifetime = max(1, round(lifetime_seconds))

    def address(self, finding: Finding, now: float) -> str:
        """Return where a finding's picture is seen.

        It is the same at every call for a long time: as a label it must not make new series.
        """
        since = int(finding.since)
        periods = max(1, -(-(int(now) - since + 1) // self._lifetime))
        parameters = {
            "job_id": finding.job_id,
            "node": finding.node,
            "gpu": finding.gpu,
            "metric": finding.metric,
            "method": finding.method,
            _EXPIRES: str(since + (periods + 1) * self._lifetime),
        }
        signed = {**parameters, _SIGNATURE: self._signature(parameters)}
        return f"{self._address}{PATH}?{urlencode(signed)}"

    def checked(self, path: str, query: str, now: float) -> Mapping[str, str]:
        """Return the parameters of an address that was signed here and has not expired.

        Raises
        ------
        SignatureError
            If it was not, or has.
        """
        pairs = parse_qsl(query, keep_blank_values=True)
        parameters = dict(pairs)
        given = parameters.pop(_SIGNATURE, "")
        right = hmac.compare_digest(given.encode(), self._signature(parameters).encode())
        if path not in (PATH, PNG_PATH) or len(pairs) != len(parameters) + 1 or not right:
            raise SignatureError("The address of this picture is not signed, or was changed.")
        # What was signed here is a number.
        if now >= int(parameters[_EXPIRES]):
            raise SignatureError("The address of this picture has expired.")
        return parameters

    def opens(self, path: str, query: str, now: float) -> bool:
        """Return whether an address needs no password."""
        if path not in (PATH, PNG_PATH):
            return False
        try:
            self.checked(path, query, now)
        except SignatureError:
            return False
        return True

    def _signature(self, parameters: Mapping[str, str]) -> str:
        text = f"{PATH}?{urlencode(sorted(parameters.items()))}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def make_signer(settings: PicturesConfig) -> Signer | None:
    """Return what signs the addresses; None where no key is set.

    Raises
    ------
    ConfigError
        If the key cannot be read, or is too short.
    """
    if settings.key_file is None or settings.address is None:
        return None
    return Signer(read_key(settings.key_file), settings.address, settings.lifetime_seconds)


def read_key(file: Path) -> bytes:
    """Return the key in a file, without white space around it.

    Raises
    ------
    ConfigError
        If it cannot be read, or is too short.
    """
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            [f"web.pictures.key_file: {str(file)!r} cannot be read: {error.strerror}."]
        ) from error
    if len(key) < _LEAST_KEY_BYTES:
        raise ConfigError(
            [
                f"web.pictures.key_file: {str(file)!r} holds {len(key)} bytes, and a key needs at "
                f"least {_LEAST_KEY_BYTES}. For example: openssl rand -hex 32 > {file}"
            ]
        )
    return key
