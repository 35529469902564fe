"""What an answer says about an address that is no Prometheus', and what to set in its place."""

from __future__ import annotations

import http.client
import ssl

from peerwatch_common.settings.secrets import without_logins

# A server that expects TLS answers plain HTTP with an alert (RFC 8446, 5.1), or says so in words.
_TLS_ALERT = "\x15\x03"
_TO_HTTPS = "the server speaks HTTPS: set prometheus.url to https://"
# What only one mistake makes a server say.
_SAID = {
    "http request to an https server": _TO_HTTPS,
    "plain http request was sent to https port": _TO_HTTPS,
    # Mimir, Cortex and what else is built on grafana/dskit (user/id.go), asked without a tenant.
    "no org id": (
        "it has several tenants: set X-Scope-OrgID in prometheus.headers to the one to read"
    ),
}


def hint_of_answer(status: int, text: str, location: str = "") -> str:
    """Return what to do about an error's answer; empty where its own text is all there is.

    Parameters
    ----------
    status
        HTTP status.
    text
        Of its body.
    location
        Where it points.
    """
    said = text.lower()
    for words, hint in _SAID.items():
        if words in said:
            return hint
    # VictoriaMetrics repeats the query that it refuses, whose labels may name either.
    refuses = status in {400, 422} or status >= 500
    if "alertmanager" in said and not refuses:
        return "this is an Alertmanager: set prometheus.url to the Prometheus that sends to it"
    is_grafana = "grafana" in said and not refuses
    if "/login" in location or is_grafana or "accesserrorid" in said:
        return (
            "this is a Grafana: set prometheus.url to the address of its data source, or to "
            "GRAFANA/api/datasources/proxy/uid/UID with a token in prometheus.headers"
        )
    if 300 <= status < 400:
        there = without_logins(location)[:200]
        return f"it points elsewhere ({there}): set prometheus.url to where it points"
    if status in {404, 405, 410}:
        return (
            "there is no query API: set prometheus.url to a Prometheus (9090 by default; 9093 is "
            "an Alertmanager, 3000 a Grafana), with the path prefix it is served under"
        )
    return ""


def hint_of_failure(error: BaseException, scheme: str) -> str:
    """Return what to do about a connection that failed; empty where nothing more is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted: set REQUESTS_CA_BUNDLE to the authority's file"
    if isinstance(error, ssl.SSLError) and scheme == "https":
        return "the server may speak plain HTTP: set prometheus.url to http://"
    if isinstance(error, http.client.BadStatusLine) and _TLS_ALERT in str(error):
        return _TO_HTTPS
    if isinstance(error, ConnectionResetError) and scheme == "http":
        return (
            "check prometheus.url and that the server runs; if it speaks HTTPS, set "
            "prometheus.url to https://"
        )
    return ""
