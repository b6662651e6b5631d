"""Formats that nodes write, and the files that are written whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.formats.errors import StorageError
from node.formats.files import AppendOnlyFile, write_whole


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_whole(file, b"old")
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    with pytest.raises(StorageError, match=r"missing/x\.json: cannot be written"):
        write_whole(tmp_path / "missing" / "x.json", b"")
    assert [found.name for found in tmp_path.iterdir()] == ["x.json"]


def test_appending_goes_on_at_the_end(tmp_path: Path) -> None:
    for line in (b"1\n", b"2\n"):
        file = AppendOnlyFile(tmp_path / "x.jsonl")
        file.write(line)
        file.close()
    assert (tmp_path / "x.jsonl").read_bytes() == b"1\n2\n"
