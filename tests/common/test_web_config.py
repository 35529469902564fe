"""TLS and basic authentication from exporter-toolkit's file, with real clients."""

from __future__ import annotations

import base64
import contextlib
import ssl

import pytest

from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.rate import RateLimit
from peerwatch_common.web.security import SecurityFile
from web_client import (
    DETECTOR,
    EXPORTER,
    TEXT_EXPOSITION,
    Authority,
    Clock,
    FakeEndpoints,
    ask,
    everything,
    hash_of,
    raw,
    serving,
)

TLS = {"cert_file": "server.crt", "key_file": "server.key"}
HASH = hash_of("secret")
both_programs = pytest.mark.parametrize("program", [EXPORTER, DETECTOR])


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def scrape(server, context=None, **headers):
    return ask(server.port, "/metrics", context=context, **headers)


# TLS


@both_programs
def test_exposition_is_served_over_tls(write, authority, program):
    with serving(
        FakeEndpoints(), program=program, config_file=write(tls_server_config=TLS)
    ) as server:
        assert TEXT_EXPOSITION == scrape(server, authority.client()).body
        with raw(server.port) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"200 OK" not in everything(plain)


def test_certificate_and_key_may_stand_in_the_file(write, authority):
    text = {
        name: (authority.directory / f"server.{end}").read_text()
        for name, end in (("cert", "crt"), ("key", "key"))
    }
    with serving(FakeEndpoints(), config_file=write(tls_server_config=text)) as server:
        assert 200 == scrape(server, authority.client()).status


def test_client_that_never_shakes_hands_stops_nobody(write, authority):
    with (
        serving(FakeEndpoints(), config_file=write(tls_server_config=TLS)) as server,
        raw(server.port),
        raw(server.port) as garbage,
    ):
        garbage.sendall(b"no tls at all\r\n\r\n")
        assert 200 == scrape(server, authority.client()).status


def test_clients_that_never_shake_hands_do_not_fill_the_server(write, authority):
    file = write(tls_server_config=TLS)
    with serving(FakeEndpoints(), config_file=file, max_connections=2) as server:
        with raw(server.port), raw(server.port):
            assert 200 == scrape(server, authority.client()).status
        assert 0 == server.facts.rejected_connections


@pytest.mark.parametrize(
    ("settings", "version", "expected"),
    [
        ({}, ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        ({}, ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
        ({"min_version": "TLS13"}, ssl.TLSVersion.TLSv1_2, None),
        ({"max_version": "TLS12"}, ssl.TLSVersion.TLSv1_3, None),
        ({"cipher_suites": ["TLS_AES_128_GCM_SHA256"]}, ssl.TLSVersion.TLSv1_2, None),
    ],
)
def test_versions_are_those_that_are_set(write, authority, settings, version, expected):
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    path = write(tls_server_config={**TLS, **settings})
    with serving(FakeEndpoints(), config_file=path) as server:
        assert expected == negotiated(server.port, context, lambda secured: secured.version())


def test_cipher_suite_is_one_of_those_that_are_set(write, authority):
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    suites = ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]
    path = write(
        tls_server_config={**TLS, "cipher_suites": suites, "prefer_server_cipher_suites": False}
    )
    with serving(FakeEndpoints(), config_file=path) as server:
        suite = negotiated(server.port, context, lambda secured: secured.cipher()[0])
        assert suite in {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"}
        context.set_ciphers("ECDHE+AES128")
        assert negotiated(server.port, context, lambda secured: secured.cipher()) is None


@pytest.mark.parametrize(("curve", "agrees"), [("secp384r1", True), ("prime256v1", False)])
def test_curve_is_the_one_that_is_set(write, authority, curve, agrees):
    context = authority.client()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ecdh_curve(curve)
    path = write(tls_server_config={**TLS, "curve_preferences": ["CurveP384"]})
    with serving(FakeEndpoints(), config_file=path) as server:
        version = negotiated(server.port, context, lambda secured: secured.version())
    assert ("TLSv1.3" if agrees else None) == version


def negotiated(port, context, ask_for):
    """Return what a handshake agrees on, or None if it fails."""
    with raw(port) as connection:
        try:
            with context.wrap_socket(connection, server_hostname="127.0.0.1") as secured:
                return ask_for(secured)
        except (ssl.SSLError, ConnectionError):
            return None


# Client certificates


@both_programs
@pytest.mark.parametrize("kind", ["RequireAndVerifyClientCert", "VerifyClientCertIfGiven"])
@pytest.mark.parametrize("who", ["known", "stranger", "nobody"])
def test_client_certificates_are_checked(write, authority, tmp_path, kind, who, program):
    (tmp_path / "other").mkdir()
    certificate = {
        "known": lambda: authority.issue("client", "prometheus-0"),
        "stranger": lambda: Authority(tmp_path / "other").issue("client", "prometheus-0"),
        "nobody": lambda: None,
    }[who]()
    tls = {**TLS, "client_ca_file": "ca.crt", "client_auth_type": kind}
    welcome = who == "known" or (who == "nobody" and kind == "VerifyClientCertIfGiven")
    with serving(
        FakeEndpoints(), program=program, config_file=write(tls_server_config=tls)
    ) as server:
        assert welcome == served(server, authority.client(certificate))


@pytest.mark.parametrize(
    ("names", "welcome"),
    [
        (["prometheus-0.example"], True),
        (["10.1.2.3"], True),
        (["prometheus@example.org"], True),
        (["prometheus-9.example", "other.example"], False),
    ],
)
def test_client_must_have_an_allowed_name(write, authority, names, welcome):
    client = authority.issue("client", "prometheus-0.example", "10.1.2.3", "prometheus@example.org")
    tls = {
        **TLS,
        "client_ca_file": "ca.crt",
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_allowed_sans": names,
    }
    with serving(FakeEndpoints(), config_file=write(tls_server_config=tls)) as server:
        assert welcome == served(server, authority.client(client))


def served(server, context):
    try:
        return 200 == scrape(server, context).status
    except (OSError, ConnectionError):
        return False


# Basic authentication, headers, rate limit


@both_programs
@pytest.mark.parametrize("path", ["/metrics", "/metrics/fast", "/", "/-/healthy", "/-/ready", "/x"])
def test_everything_is_behind_the_login(write, path, program):
    config = write(basic_auth_users={"prometheus": HASH, "operator": hash_of("other")})
    with serving(FakeEndpoints(), program=program, config_file=config) as server:
        refused = ask(server.port, path)
        assert (401, f'Basic realm="{program}", charset="UTF-8"') == (
            refused.status,
            refused.headers["WWW-Authenticate"],
        )
        welcome = ask(server.port, path, Authorization=basic("prometheus", "secret"))
        assert 401 != welcome.status
        assert 1 == server.facts.failed_logins


@both_programs
@pytest.mark.parametrize(
    "header",
    [
        basic("prometheus", "other"),
        basic("operator", "secret"),
        basic("nobody", "secret"),
        basic("", ""),
        "Basic",
        "Basic !!!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Bearer " + base64.b64encode(b"prometheus:secret").decode(),
    ],
)
def test_wrong_login_is_refused(write, header, program):
    config = write(basic_auth_users={"prometheus": HASH, "operator": hash_of("other")})
    with serving(FakeEndpoints(), program=program, config_file=config) as server:
        assert 401 == scrape(server, Authorization=header).status


@both_programs
def test_headers_are_added_to_every_answer(write, program):
    headers = {
        "X-Frame-Options": "deny",
        "X-XSS-Protection": "",
        "Content-Security-Policy": "a 'b'",
    }
    with serving(
        FakeEndpoints(), program=program, config_file=write(http_server_config={"headers": headers})
    ) as server:
        for path in ("/metrics", "/nowhere"):
            answer = ask(server.port, path)
            assert ("deny", None, "a 'b'") == tuple(answer.headers[name] for name in headers)


@both_programs
def test_requests_beyond_the_rate_limit_are_refused(write, program):
    config = write(rate_limit={"interval": "1h", "burst": 2})
    with serving(FakeEndpoints(), program=program, config_file=config) as server:
        assert [200, 200, 429] == [scrape(server).status for _ in range(3)]


def test_rate_limit_recovers_to_its_burst_and_no_further():
    clock = Clock()
    limit = RateLimit(2.0, 2, clock)
    assert [True, True, False] == [limit.allow() for _ in range(3)]
    clock.now += 2
    assert [True, False] == [limit.allow() for _ in range(2)]
    clock.now += 1000
    assert [True, True, False] == [limit.allow() for _ in range(3)]


# Changes while the exporter runs


@pytest.fixture
def clock():
    return Clock()


@both_programs
def test_renewed_certificate_is_served(write, authority, clock, tmp_path, program):
    other = Authority(tmp_path)
    path = write(tls_server_config=TLS)
    (tmp_path / "server.crt").write_bytes((authority.directory / "server.crt").read_bytes())
    with serving(FakeEndpoints(), program=program, config_file=path, monotonic=clock) as server:
        assert served(server, authority.client())
        other.issue("server")
        clock.now += 2
        assert served(server, other.client())
        assert not served(server, authority.client())


@both_programs
def test_renewed_users_count_and_old_ones_no_more(write, clock, program):
    path = write(basic_auth_users={"prometheus": HASH})
    with serving(FakeEndpoints(), program=program, config_file=path, monotonic=clock) as server:
        assert 200 == scrape(server, Authorization=basic("prometheus", "secret")).status
        write(basic_auth_users={"prometheus": hash_of("changed")})
        clock.now += 2
        assert 401 == scrape(server, Authorization=basic("prometheus", "secret")).status
        assert 200 == scrape(server, Authorization=basic("prometheus", "changed")).status


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("basic_auth_users: {prometheus: secret}", id="no hash"),
        pytest.param("basic_auth_users: [", id="no YAML"),
        pytest.param("basic_auth_users: " + "[" * 5000, id="endless brackets"),
        pytest.param("", id="emptied, as half-written files are"),
        pytest.param("tls_server_config: {cert_file: server.crt, key_file: server.key}", id="TLS"),
    ],
)
def test_broken_version_keeps_the_old_one_and_says_so_once(write, clock, caplog, broken):
    path = write(basic_auth_users={"prometheus": HASH})
    facts = WebFacts()
    file = SecurityFile(path, facts, clock)
    before = file.current()
    path.write_text(broken)
    for _ in range(3):
        clock.now += 2
        assert before is file.current()
    assert facts.reload_failed
    assert 1 == len([record for record in caplog.records if "not taken over" in record.message])
    assert "secret" not in caplog.text
    write(basic_auth_users={"prometheus": HASH}, rate_limit={"interval": "1s", "burst": 1})
    clock.now += 2
    assert file.current().limit is not None
    # Who had logged in stays so: the users did not change.
    assert before.logins is file.current().logins
    assert not facts.reload_failed


def test_key_that_comes_after_its_certificate_is_waited_for(write, authority, clock, tmp_path):
    facts = WebFacts()
    file = SecurityFile(write(tls_server_config=TLS), facts, clock)
    write(tls_server_config={"cert_file": "new.crt", "key_file": "new.key"})
    for name, failed in (("new.crt", True), ("new.key", False)):
        source = authority.directory / name.replace("new", "server")
        (tmp_path / name).write_bytes(source.read_bytes())
        clock.now += 2
        file.current()
        assert failed == facts.reload_failed


def test_reload_reads_without_waiting(write, clock):
    path = write(http_server_config={"headers": {"X-Frame-Options": "deny"}})
    file = SecurityFile(path, WebFacts(), clock)
    write(http_server_config={"headers": {"X-Frame-Options": "sameorigin"}})
    assert (("X-Frame-Options", "deny"),) == file.current().headers
    file.reload()
    assert (("X-Frame-Options", "sameorigin"),) == file.current().headers


# Mistakes
