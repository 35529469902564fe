"""The picture that a notification links to: who gets it, and that nothing else opens."""

from __future__ import annotations

import base64
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import bcrypt
import pytest

from detector.fakes import config_for
from detector.web.test_web import Site
from peerwatch_common.web.security import SecurityFile
from peerwatch_detector.web.server import make_server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Site, str]]:
    """A detector with a finding that serves behind a password, and where."""
    key, web = tmp_path / "key", tmp_path / "web.yaml"
    key.write_text("k" * 32)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web.write_text(f"basic_auth_users: {{ops: '{hashed}'}}\n")
    config = config_for()
    pictures = {"key_file": key, "address": "http://peerwatch.example.com"}
    settings = config.model_dump() | {
        "web": {"pictures": pictures, "config_file": web},
        "listen": {"address": "127.0.0.1", "port": 0},
    }
    site = Site(type(config).model_validate(settings))
    site.add_job("job-1")
    site.run(900)
    server = make_server(site.detector, SecurityFile(web, site.facts), site.facts)
    server.start()
    try:
        yield site, f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str, login: str = "") -> tuple[int, str, str]:
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    request = urllib.request.Request(url, headers=headers if login else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def published(base: str) -> str:
    _, _, metrics = get(f"{base}/metrics", "ops:secret")
    (url,) = set(re.findall(r'peerwatch_finding_picture_info\{.*url="([^"]+)"', metrics))
    return str(url)


def test_the_published_address_opens_the_picture_and_nothing_else(
    served: tuple[Site, str],
) -> None:
    site, base = served
    address = published(base).replace("http://peerwatch.example.com", base)

    status, content_type, body = get(address)

    assert (200, "image/svg+xml") == (status, content_type.partition(";")[0])
    said = ET.fromstring(body).get("aria-label") or ""
    assert "of node-01 and its peers" in said
    assert "deviates since 22:21:40 UTC" in said
    # The same as PNG, for who shows no SVG.
    with urllib.request.urlopen(address.replace("/picture?", "/picture.png?"), timeout=60) as png:
        assert "image/png" == png.headers["Content-Type"]
        assert b"\x89PNG" == png.read(4)
    # Changed, expired, or another view: the password is asked for.
    assert 401 == get(address.replace("node-01", "node-02"))[0]
    assert 401 == get(address.replace("/picture?", "/?"))[0]
    changed = address.replace("/picture?", "/picture.png?").replace("node-01", "node-02")
    assert 401 == get(changed)[0]
    assert 401 == get(address.replace("/picture?", "/metrics?"))[0]
    assert 403 == get(address.replace("node-01", "node-02"), "ops:secret")[0]
    site.clock.advance(3 * 604800)
    assert 401 == get(address)[0]
    status, _, body = get(address, "ops:secret")
    assert 403 == status
    assert "has expired" in body


def test_without_a_key_there_are_no_pictures_for_notifications() -> None:
    site = Site()
    site.add_job("job-1")
    site.run(900)

    assert "peerwatch_finding_picture_info{" not in site.get("/metrics")
    assert "web.pictures is not set up" in site.get("/picture?signature=", 404)
