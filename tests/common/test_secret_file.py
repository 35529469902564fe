from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_common.settings.secret_file import read_secret


@pytest.mark.parametrize(
    "content", [b"s3cr\xc3\xa9t", b"\xef\xbb\xbfs3cr\xc3\xa9t\r\n", b" s3cr\xc3\xa9t \n"]
)
def test_the_secret_is_what_stands_in_the_file(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)

    assert "s3crét" == read_secret(file)
