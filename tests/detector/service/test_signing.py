"""Addresses of pictures: what opens, what does not, and for how long they stay the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from peerwatch_common.errors import ConfigError
from peerwatch_detector.config.service import PicturesConfig
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.service.signing import SignatureError, Signer, make_signer, read_key

NOW = 1_700_000_000.0
HOUR = 3600.0
KEY = b"0123456789abcdef0123456789abcdef"
SIGNER = Signer(KEY, "https://peerwatch.example.com/", HOUR)
FINDING = Finding("job/1 &=?#%ü", "n-1", "3", "load", "peerwatch", "critical", 1, NOW, NOW, 3.0)


def parts(address: str) -> tuple[str, str]:
    split = urlsplit(address)
    return split.path, split.query


def test_a_signed_address_gives_back_whose_picture_it_is() -> None:
    address = SIGNER.address(FINDING, NOW)

    asked = SIGNER.checked(*parts(address), NOW + HOUR)

    assert address.startswith("https://peerwatch.example.com/picture?")
    assert FINDING.job_id == asked["job_id"]
    assert ("n-1", "3", "load") == (asked["node"], asked["gpu"], asked["metric"])


def test_what_opens_the_picture_opens_it_as_png_and_nothing_else() -> None:
    path, query = parts(SIGNER.address(FINDING, NOW))

    assert SIGNER.opens(f"{path}.png", query, NOW)
    assert not SIGNER.opens(f"{path}.jpg", query, NOW)
    assert not SIGNER.opens("/", query, NOW)


def test_an_address_stays_the_same_for_its_lifetime_and_is_renewed_before_it_expires() -> None:
    first = SIGNER.address(FINDING, NOW)
    later = SIGNER.address(FINDING, NOW + HOUR)

    assert first == SIGNER.address(FINDING, NOW + HOUR - 1)
    assert first != later
    assert SIGNER.opens(*parts(first), NOW + 2 * HOUR - 1)
    assert not SIGNER.opens(*parts(first), NOW + 2 * HOUR)
    assert SIGNER.opens(*parts(later), NOW + 3 * HOUR - 1)
    with pytest.raises(SignatureError, match="expired"):
        SIGNER.checked(*parts(first), NOW + 2 * HOUR)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("node=n-1", "node=n-2"),
        ("gpu=3", "gpu="),
        ("&gpu=3", ""),
        ("metric=load", "metric=load&metric=load"),
        ("expires=17", "expires=27"),
        ("signature=", "signature=0"),
        ("signature=", "other="),
        ("signature=", "signature=%FF"),
    ],
)
def test_a_changed_address_opens_nothing(old: str, new: str) -> None:
    path, query = parts(SIGNER.address(FINDING, NOW))
    assert old in query

    assert not SIGNER.opens(path, query.replace(old, new, 1), NOW)
    with pytest.raises(SignatureError, match="not signed"):
        SIGNER.checked(path, query.replace(old, new, 1), NOW)


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/jobs", "/picture/", "/jobs/picture"])
def test_nothing_else_opens_by_a_signature(path: str) -> None:
    _, query = parts(SIGNER.address(FINDING, NOW))

    assert not SIGNER.opens(path, query, NOW)


def test_another_key_signs_otherwise() -> None:
    other = Signer(b"x" * 32, "https://peerwatch.example.com", HOUR)

    assert not other.opens(*parts(SIGNER.address(FINDING, NOW)), NOW)
    assert SIGNER.address(FINDING, NOW) != SIGNER.address(replace(FINDING, node="n-2"), NOW)


def test_without_a_key_nothing_is_signed() -> None:
    assert make_signer(PicturesConfig()) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"short\n", "holds 5 bytes, and a key needs at least 32"), (None, "cannot be read")],
)
def test_a_key_that_cannot_be_used_is_told(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError, match=message):
        read_key(file)


def test_a_key_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="key_file is set and address is not"):
        PicturesConfig(key_file=tmp_path / "key")
    with pytest.raises(ValueError, match="address"):
        PicturesConfig(address="javascript:alert(1)")
