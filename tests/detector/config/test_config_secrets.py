"""No mistake and no message shows a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.config_text import mistakes
from peerwatch_detector.config.prometheus import PrometheusConfig


def test_an_address_is_shown_without_its_password() -> None:
    config = PrometheusConfig(url="https://user:se%40cret@[::1]:9090/prefix")
    assert "https://[::1]:9090/prefix" == config.shown_url


@pytest.mark.parametrize(
    "text",
    [
        "prometheus: {url: 'htp://user:s3cret@host:9090'}",
        "prometheus: 'http://user:s3cret@host:9090'",
        "prometheus: {url: 'http://user:x/s3cret@host:9090'}",
        "prometheus: {url: 'http://user:s3cret@host?x=1'}",
        "prometheus: {url: 'http://user:s3cret@[host'}",
        "prometheus: {url: ['http://user:s3cret@host']}",
        "prometheus: {'http://user:s3cret@host': 3}",
        "'http://user:s3cret@host': 3",
        "[{prometheus: {headers: {Authorization: s3cret}}}]",
        "prometheus: {headers: ['Authorization: Bearer s3cret']}",
        "prometheus: {headers: {Authorization: [s3cret]}}",
        "prometheus: {headers: {Authorization: {Bearer: s3cret}}}",
        'prometheus: {headers: {Authorization: "s3cret\\nx"}}',
        "prometheus: {headers: {Bad Name: s3cret}}",
        "prometheus: [{headers: {Authorization: s3cret, X-Token: s3cret}}]",
        "listen: [{password: s3cret, url: 'https://a:s3cret@b'}]",
        "method: 'https://a:s3cret@b/c@d'",
    ],
)
def test_no_mistake_tells_a_password(tmp_path: Path, text: str) -> None:
    found = mistakes(tmp_path, text)
    assert found
    assert "s3cret" not in "\n".join(found)


def test_a_mistake_is_one_line_however_the_file_is_written(tmp_path: Path) -> None:
    text = 'method: "a\\nb\\e[2J"\n"x\\ny": 1\nlisten: {port: "' + 5000 * "9" + 'x"}\n'
    found = mistakes(tmp_path, text)
    assert 3 == len(found)
    for mistake in found:
        assert mistake.isprintable()
        assert len(mistake) < 1000
