"""Certificates and web configurations, for tests of servers and of the files' mistakes."""

from __future__ import annotations

import pytest
import yaml

from web_client import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    result = Authority(tmp_path_factory.mktemp("tls"))
    result.issue("server")
    return result


@pytest.fixture
def write(authority, tmp_path):
    """Return a function that writes a web configuration beside copies of the certificates."""
    for path in authority.directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())

    def written(**sections):
        path = tmp_path / "web.yaml"
        path.write_text(yaml.safe_dump(sections))
        return path

    return written
