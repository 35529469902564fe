"""Reads of files to their end."""

from __future__ import annotations

import pytest

from peerwatch_exporter.sources.files.whole_file import read_whole


@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 100_000])
def test_file_is_read_to_its_end(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(b"7" * size)
    assert b"7" * size == read_whole(str(path))


def test_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_whole(str(tmp_path / "nothing"))
