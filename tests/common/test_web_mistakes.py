"""Mistakes in exporter-toolkit's file are told, all at once, and the shipped example has none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.errors import ConfigError
from peerwatch_common.web.load import load_web_settings
from web_client import (
    hash_of,
)

EXAMPLE = Path(__file__).parents[2] / "exporter" / "web-config.example.yaml"
TLS = {"cert_file": "server.crt", "key_file": "server.key"}
HASH = hash_of("secret")


def mistakes_of(path):
    with pytest.raises(ConfigError) as caught:
        load_web_settings(path)
    return [mistake.removeprefix(f"{path}: ") for mistake in caught.value.mistakes]


def test_example_is_accepted_as_it_stands(authority, tmp_path):
    path = tmp_path / EXAMPLE.name
    path.write_bytes(EXAMPLE.read_bytes())
    settings = yaml.safe_load(EXAMPLE.read_text())
    tls = settings["tls_server_config"]
    for key, name in (("cert_file", "server.crt"), ("key_file", "server.key")):
        target = tmp_path / tls[key]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((authority.directory / name).read_bytes())
    loaded = load_web_settings(path)
    assert loaded.context is not None
    assert loaded.settings.basic_auth_users


def test_empty_file_protects_nothing(write):
    loaded = load_web_settings(write())
    assert (None, {}) == (loaded.context, loaded.settings.basic_auth_users)


@pytest.mark.parametrize("value", [0, 1, "1; mode=block"])
def test_a_header_that_is_a_number_is_its_digits(write, value):
    # As in exporter-toolkit's own example, which quotes no number.
    headers = {"X-XSS-Protection": value}
    loaded = load_web_settings(write(http_server_config={"headers": headers}))
    assert {"X-XSS-Protection": str(value)} == loaded.settings.http_server_config.headers


def test_all_mistakes_are_told_at_once_and_no_secret(write):
    path = write(
        tls_server_config={"cert_file": "absent.crt", "key_file": "absent.key", "certs": 1},
        http_server_config={"http3": True, "headers": {"Server": "x"}},
        basic_auth_users={"alice": "open sesame", "bob": 7, "carol": HASH.replace("$04$", "$16$")},
        rate_limits={},
    )
    mistakes = mistakes_of(path)
    for start in (
        "tls_server_config.certs: unknown key 'certs'; did you mean 'cert'?",
        f"tls_server_config.cert_file: {path.parent}/absent.crt: cannot be read: No such file",
        f"tls_server_config.key_file: {path.parent}/absent.key: cannot be read: No such file",
        "http_server_config.http3: unknown key 'http3'; did you mean 'http2'?",
        "basic_auth_users.alice: this is no bcrypt hash; make one with: htpasswd -nBC 10",
        "basic_auth_users.bob: should be a valid string",
        "basic_auth_users.carol: the hash has cost 16; 4 to 14 are taken",
        "rate_limits: unknown key 'rate_limits'; did you mean 'rate_limit'?",
    ):
        assert [start] == [mistake[: len(start)] for mistake in mistakes if start in mistake]
    assert len(mistakes) == 8
    assert not any("sesame" in mistake or HASH[8:] in mistake for mistake in mistakes)


@pytest.mark.parametrize(
    ("tls", "mistake"),
    [
        ({"cert_file": "server.crt"}, "key_file (or key) is missing"),
        ({"client_auth_type": "NoClientCert"}, "cert_file (or cert) is missing; key_file"),
        ({**TLS, "cert": "x"}, "cert and cert_file are both set"),
        ({**TLS, "key_file": "ca.crt"}, "are not a certificate and its key in PEM"),
        ({**TLS, "cert_file": "web.yaml"}, "are not a certificate and its key in PEM"),
        ({**TLS, "key_file": "other.key"}, "other.key is not the key of"),
        ({**TLS, "key_file": "locked.key"}, "locked.key is protected by a password"),
        ({**TLS, "client_ca_file": "ca.crt"}, "client_ca_file has no effect with"),
        (
            {**TLS, "client_auth_type": "RequireAndVerifyClientCert"},
            "RequireAndVerifyClientCert needs client_ca_file",
        ),
        (
            {
                **TLS,
                "client_ca_file": "server.key",
                "client_auth_type": "RequireAndVerifyClientCert",
            },
            "server.key holds no certificates in PEM",
        ),
        ({**TLS, "client_auth_type": "RequireAnyClientCert"}, "takes a certificate that nobody"),
        ({**TLS, "client_auth_type": "Always"}, "unknown policy 'Always'"),
        ({**TLS, "client_allowed_sans": ["a"]}, "client_allowed_sans needs"),
        ({**TLS, "min_version": "TLS10"}, "TLS10 is broken and not served"),
        ({**TLS, "max_version": "SSL3"}, "unknown version 'SSL3'"),
        ({**TLS, "min_version": "TLS13", "max_version": "TLS12"}, "is above max_version"),
        ({**TLS, "cipher_suites": ["TLS_NULL"]}, "unknown suite 'TLS_NULL'; there are TLS_AES"),
        (
            {**TLS, "max_version": "TLS12", "cipher_suites": ["TLS_AES_128_GCM_SHA256"]},
            "none of them belongs to TLS 1.2",
        ),
        ({**TLS, "curve_preferences": ["X25519", "CurveP256"]}, "can hold one curve only"),
        ({**TLS, "curve_preferences": ["P-256"]}, "curve_preferences.0: "),
    ],
)
def test_impossible_tls_is_refused(write, authority, tmp_path, tls, mistake):
    authority.issue("other")
    (tmp_path / "other.key").write_bytes((authority.directory / "other.key").read_bytes())
    subprocess.run(
        ["openssl", "rsa", "-aes128", "-passout", "pass:x", "-out", tmp_path / "locked.key"],
        input=subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True).stdout,
        check=True,
        capture_output=True,
    )
    (only,) = mistakes_of(write(tls_server_config=tls))
    assert mistake in only
    assert only.startswith("tls_server_config")


@pytest.mark.parametrize(
    ("sections", "mistake"),
    [
        ({"http_server_config": {"headers": {"X-Frame-Options": "all"}}}, "deny or sameorigin"),
        (
            {"http_server_config": {"headers": {"Content-Security-Policy": "a\r\nb: c"}}},
            "one line of ASCII",
        ),
        ({"rate_limit": {"interval": "1s"}}, "burst must be at least 1"),
        ({"rate_limit": {"interval": "soon", "burst": 1}}, "'soon' is no duration"),
        ({"rate_limit": {"interval": True, "burst": 1}}, "True is no duration"),
        ({"basic_auth_users": {"a:b": HASH}}, "'a:b' cannot be a user"),
        ({"basic_auth_users": [HASH]}, "basic_auth_users: should be a valid dictionary"),
        ({"tls_server_config": "on"}, "tls_server_config: "),
    ],
)
def test_impossible_setting_is_refused(write, sections, mistake):
    (only,) = mistakes_of(write(**sections))
    assert mistake in only
    assert HASH not in only


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_says_so(write, tmp_path):
    (tmp_path / "server.key").chmod(0)
    (only,) = mistakes_of(write(tls_server_config=TLS))
    assert only.endswith("server.key: cannot be read: Permission denied")


@given(
    st.dictionaries(
        st.sampled_from(
            ["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"]
        )
        | st.text(max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["cert_file", "key", "headers", "interval", "burst", "http2"])
                    | st.text(max_size=3),
                    inner,
                    max_size=3,
                )
            ),
        ),
        max_size=3,
    )
)
def test_no_file_raises_anything_else(tmp_path_factory, sections):
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_text(yaml.safe_dump(sections))
    mistakes = ["none"]
    try:
        load_web_settings(path)
    except ConfigError as error:
        mistakes = error.mistakes
    assert all(mistakes)
    assert mistakes
