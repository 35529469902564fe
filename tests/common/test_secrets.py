"""One list of the names of secrets; whatever was hidden anywhere stays hidden."""

from __future__ import annotations

import itertools
import re

import pytest

from each_case import each_case
from peerwatch_common.settings.secrets import NAMES_IN_TEXTS, is_secret, is_secret_variable, shown
from peerwatch_common.signatures.redact import redacted
from peerwatch_exporter.catalog.config_keys import VARIABLE_NAMES

KEYS = [
    "authorization",
    "authorisation",
    "Cookie",
    "credential",
    "credentials_json",
    "headers",
    "password",
    "passwd",
    "passwort",
    "private_key",
    "secret",
    "token",
    "hf_token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "bearer",
]
VARIABLES = [
    "NCCL_KEY",
    "MY_TOKEN",
    "SECRET_X",
    "PASS",
    "DB_PASS",
    "CREDENTIALS",
    "X_AUTH",
    "AUTH_X",
    "COOKIE",
    "A_SIGNATURE",
    "aws_access_key_id",
    "Signature",
    "WANDB_API_KEY",
    "HTTP_HEADERS",
    "PRIVATE_X",
    "DB_PWD",
]
TEXTS = [
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access_key_id",
    "accesskeyid",
    "account_key",
    "auth",
    "authorization",
    "authorisation",
    "auth_token",
    "auth-token",
    "bearer",
    "client_secret",
    "cookie",
    "credential",
    "credentials",
    "passphrase",
    "password",
    "passwd",
    "private_key",
    "pwd",
    "secret",
    "session_token",
    "sig",
    "signature",
    "token",
    "secret_key",
    "WANDB_API_KEY",
    "aws_secret_access_key",
    "db_password",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_settings_are_secret(key: str) -> None:
    assert is_secret(key)
    assert "hunter2" not in shown({key: "hunter2"})


@pytest.mark.parametrize(
    "key", ["key", "auth", "signatures", "token_file", "secret_path", "header_seconds", "signal"]
)
def test_keys_that_are_no_secrets_are_shown(key: str) -> None:
    assert "hunter2" in shown({key: "hunter2"})


@each_case("name", [*KEYS, *VARIABLES])
def test_variables_are_secret(name: str) -> None:
    assert is_secret_variable(name)
    assert is_secret_variable(name.lower())


def test_none_of_the_variables_that_are_published_is_taken_for_a_secret() -> None:
    assert [] == [name for name in VARIABLE_NAMES if is_secret_variable(name)]


@each_case("name, form", itertools.product(TEXTS, ["{}=hunter2", "{}: hunter2", "'{}': 'hunter2'"]))
def test_values_of_names_in_texts_are_hidden(name: str, form: str) -> None:
    assert "hunter2" not in redacted(form.format(name).encode())


@each_case("name", [name for name in TEXTS if re.fullmatch(NAMES_IN_TEXTS, name)])
def test_values_of_options_are_hidden(name: str) -> None:
    assert f"run --{name} <secret> now" == redacted(f"run --{name} hunter2 now".encode())


@pytest.mark.parametrize(
    "text", ["token 5 is unknown", "num_tokens=32000", "header: 7", "keys=3", "passes: 2"]
)
def test_prose_is_left_alone(text: str) -> None:
    assert text == redacted(text.encode())


def test_the_names_have_no_groups_that_would_count() -> None:
    assert 0 == re.compile(NAMES_IN_TEXTS).groups
