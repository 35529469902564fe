"""A client of the programs' server, fake endpoints, and a certificate authority."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from typing import NamedTuple

import bcrypt
import flask
import trustme

from peerwatch_common.web.compression import GzipCache
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.security import SecurityFile
from peerwatch_common.web.server import HttpServer
from peerwatch_detector.web.wsgi import WsgiAdapter
from peerwatch_exporter.web.app import App

EXPORTER, DETECTOR = "peerwatch-exporter", "peerwatch-detector"
TEXT_EXPOSITION = b"# text\n" + b"host_cpus 2\n" * 400
OPENMETRICS_EXPOSITION = b"# openmetrics\n" + b"host_cpus 2\n" * 400 + b"# EOF\n"


class FakeEndpoints:
    """Endpoints that remember what they were asked."""

    def __init__(self):
        self.asked = []
        self.ready = (True, "ready")
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def full(self, *, openmetrics, timeout):
        self.entered.release()
        assert self.gate.wait(60)
        self.asked.append(("full", openmetrics, timeout))
        return OPENMETRICS_EXPOSITION if openmetrics else TEXT_EXPOSITION

    def fast(self, *, openmetrics, scraper, timeout):
        self.asked.append(("fast", openmetrics, scraper, timeout))
        return b"fast_up 1\n"

    def readiness(self):
        return self.ready


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def app_of(program, endpoints, burst=None, spans=None):
    """Return what answers in one of the programs: with the detector's, flask serves them."""
    if program == EXPORTER:
        return WithHealth(
            program, endpoints.readiness, App(endpoints, lambda: b"<html>", burst, spans)
        )
    site = flask.Flask(program)
    site.add_url_rule("/metrics", view_func=lambda: endpoints.full(openmetrics=False, timeout=5.0))
    return WithHealth(program, endpoints.readiness, WsgiAdapter(site))


@contextlib.contextmanager
def serving(
    endpoints,
    *,
    program=EXPORTER,
    config_file=None,
    burst=None,
    spans=None,
    monotonic=time.monotonic,
    **options,
):
    """Serve endpoints on a free port; yield the server, with its facts and its security file."""
    facts = WebFacts()
    security = SecurityFile(config_file, facts, monotonic)
    options = {"security": security.current, "facts": facts, "gzip": GzipCache(), **options}
    server = HttpServer(
        program, "127.0.0.1", 0, app_of(program, endpoints, burst, spans), **options
    )
    server.facts, server.file = facts, security
    server.start()
    try:
        yield server
    finally:
        endpoints.gate.set()
        server.stop()


def ask(port, path, method="GET", *, context=None, source=None, **headers):
    """Send one request over a connection of its own."""
    kind = http.client.HTTPConnection
    options = {"timeout": 60, "source_address": source and (source, 0)}
    if context is not None:
        kind, options = http.client.HTTPSConnection, {**options, "context": context}
    # Names as they are on the wire: accept_encoding is Accept-Encoding.
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = kind("127.0.0.1", port, **options)
    try:
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


@contextlib.contextmanager
def raw(port):
    """Connect without speaking."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        yield connection


def everything(connection):
    """Return what comes until the server closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def eventually(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.01)


def hash_of(password, cost=4):
    """Return a bcrypt hash, as htpasswd makes it."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


class Authority:
    """A certificate authority of its own, and the files it issues."""

    def __init__(self, directory):
        self.directory = directory
        self._authority = trustme.CA()
        self.file = directory / "ca.crt"
        self._authority.cert_pem.write_to_path(self.file)

    def issue(self, name, *identities):
        """Write ``name.crt`` and ``name.key``; return the certificate."""
        certificate = self._authority.issue_cert(*(identities or ("127.0.0.1",)))
        (self.directory / f"{name}.crt").write_bytes(
            b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        )
        certificate.private_key_pem.write_to_path(self.directory / f"{name}.key")
        return certificate

    def client(self, certificate=None):
        """Return the TLS context of a client that trusts this authority."""
        import ssl

        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            certificate.configure_cert(context)
        return context
