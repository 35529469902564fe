"""What can stand in a web configuration file: that of Prometheus' exporter-toolkit.

What this server cannot honour is refused, never ignored; load.py reads the file.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

# bcrypt's own least. A check of one password doubles with each step: 14 takes about a second.
MIN_BCRYPT_COST, MAX_BCRYPT_COST = 4, 14
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
# None: any value.
_HEADERS: dict[str, tuple[str, ...] | None] = {
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": None,
}
_VERIFYING = ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _version(name: str) -> str:
    if name in {"TLS10", "TLS11"}:
        raise ValueError(f"{name} is broken and not served; there are TLS12 and TLS13")
    if name not in {"TLS12", "TLS13"}:
        raise ValueError(f"unknown version {name!r}; there are TLS12 and TLS13")
    return name


def _client_auth(kind: str) -> str:
    if kind in {"RequireAnyClientCert", "RequireClientCert"}:
        raise ValueError(
            f"{kind} takes a certificate that nobody has checked and is not supported; "
            "use RequireAndVerifyClientCert with client_ca_file"
        )
    # RequestClientCert asks for a certificate that nobody looks at: the same as asking for none.
    if kind not in {"", "NoClientCert", "RequestClientCert", *_VERIFYING}:
        raise ValueError(
            f"unknown policy {kind!r}; there are NoClientCert, RequestClientCert, "
            f"{' and '.join(_VERIFYING)}"
        )
    return kind


_Version = Annotated[str, AfterValidator(_version)]


class TlsSettings(_Section):
    """Section ``tls_server_config``."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: Annotated[str, AfterValidator(_client_auth)] = ""
    client_allowed_sans: list[str] | None = None
    min_version: _Version = "TLS12"
    max_version: _Version = "TLS13"
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True
    curve_preferences: list[Literal["CurveP256", "CurveP384", "CurveP521", "X25519"]] = []

    @property
    def enabled(self) -> bool:
        """Whether TLS is served; exporter-toolkit takes any of these as the wish for it."""
        named = self.cert_file, self.cert, self.key_file, self.key, self.client_ca_file
        return any((*named, self.client_ca, self.client_auth_type))

    @property
    def verifies_clients(self) -> bool:
        """Whether clients' certificates are checked."""
        return self.client_auth_type in _VERIFYING

    @model_validator(mode="after")
    def _fits_together(self) -> TlsSettings:
        mistakes = [*self._certificate_mistakes(), *self._client_mistakes()]
        if self.min_version > self.max_version:
            mistakes.append(f"min_version {self.min_version} is above max_version")
        if len(self.curve_preferences) > 1:
            mistakes.append(
                "curve_preferences can hold one curve only; leave it out for OpenSSL's own order"
            )
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def _certificate_mistakes(self) -> list[str]:
        if not self.enabled:
            return []
        pairs = (("cert", self.cert, self.cert_file), ("key", self.key, self.key_file))
        missing = [
            f"{name}_file (or {name}) is missing"
            for name, inline, file in pairs
            if not inline and not file
        ]
        both = [
            f"{name} and {name}_file are both set: choose one"
            for name, inline, file in (
                *pairs,
                ("client_ca", self.client_ca, self.client_ca_file),
            )
            if inline and file
        ]
        return missing + both

    def _client_mistakes(self) -> list[str]:
        kind = self.client_auth_type or "NoClientCert"
        has_ca = bool(self.client_ca or self.client_ca_file)
        mistakes = []
        if has_ca and not self.verifies_clients:
            mistakes.append(
                f"client_ca_file has no effect with client_auth_type {kind}: "
                "set RequireAndVerifyClientCert"
            )
        if self.verifies_clients and not has_ca:
            mistakes.append(f"client_auth_type {kind} needs client_ca_file")
        if self.client_allowed_sans is not None and kind != "RequireAndVerifyClientCert":
            mistakes.append("client_allowed_sans needs client_auth_type RequireAndVerifyClientCert")
        return mistakes


def _header_text(value: object) -> object:
    """Return a number as the text that it is for exporter-toolkit: X-XSS-Protection is 0 or 1."""
    return str(value) if type(value) is int else value


def _header_value(value: str) -> str:
    if not re.fullmatch(r"[\x20-\x7e]*", value):
        raise ValueError("a header is one line of ASCII")
    return value


class HttpSettings(_Section):
    """Section ``http_server_config``."""

    http2: bool = Field(default=True, description="Accepted; HTTP/1.1 is what is served.")
    headers: dict[
        str, Annotated[str, BeforeValidator(_header_text), AfterValidator(_header_value)]
    ] = {}

    @model_validator(mode="after")
    def _headers_are_known(self) -> HttpSettings:
        mistakes = []
        for name, value in self.headers.items():
            if name not in _HEADERS:
                known = ", ".join(_HEADERS)
                mistakes.append(f"headers: {name!r} cannot be set; there are {known}")
            elif value and value not in (_HEADERS[name] or (value,)):
                allowed = " or ".join(_HEADERS[name] or ())
                mistakes.append(f"headers: {name} is {allowed}, not {value!r}")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self


def _seconds(value: object) -> float:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(
            float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(value)
        )
    raise ValueError(f"{value!r} is no duration such as 100ms or 1s")


class RateSettings(_Section):
    """Section ``rate_limit``: a token bucket for all requests together."""

    interval: Annotated[Any, AfterValidator(_seconds)] = Field(
        default=0, description="Seconds until one more request is allowed; 0: no limit."
    )
    burst: int = Field(default=0, ge=0, le=1_000_000)

    @property
    def interval_seconds(self) -> float:
        """Seconds until one more request is allowed; 0 for no limit."""
        return float(self.interval)

    @model_validator(mode="after")
    def _lets_something_through(self) -> RateSettings:
        if self.interval_seconds > 0 and self.burst < 1:
            raise ValueError("burst must be at least 1, or no request is ever answered")
        return self


def _user(name: str) -> str:
    if not name or ":" in name:
        raise ValueError(f"{name!r} cannot be a user: a name is not empty and holds no colon")
    return name


def _hash(value: str) -> str:
    found = _BCRYPT.fullmatch(value)
    if found is None:
        raise ValueError(
            "this is no bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'"
        )
    cost = int(found[1])
    if not MIN_BCRYPT_COST <= cost <= MAX_BCRYPT_COST:
        raise ValueError(
            f"the hash has cost {cost}; {MIN_BCRYPT_COST} to {MAX_BCRYPT_COST} are taken, "
            "10 is usual"
        )
    return value


class WebSettings(_Section):
    """The whole file."""

    tls_server_config: TlsSettings = TlsSettings()
    http_server_config: HttpSettings = HttpSettings()
    basic_auth_users: dict[
        Annotated[str, AfterValidator(_user)], Annotated[str, AfterValidator(_hash)]
    ] = {}
    rate_limit: RateSettings = RateSettings()
