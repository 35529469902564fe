from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_responder.webhook.app import bears


class Request:
    def __init__(self, authorization: str) -> None:
        self._authorization = authorization

    def header(self, name: str) -> str:
        assert "authorization" == name
        return self._authorization


@pytest.mark.parametrize("content", [b"t0ken", b"t0ken\n", b"\xef\xbb\xbft0ken\r\n"])
def test_who_bears_the_token_of_the_file_is_let_in_and_nobody_else(
    content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)

    assert bears(Request("Bearer t0ken"), file)
    assert not bears(Request("Bearer another"), file)
    assert not bears(Request(""), file)
