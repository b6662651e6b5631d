"""A run folder as an archive."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node.formats.reading import open_file

ARCHIVE: Final = ".tar.gz"
_BLOCK_BYTES: Final = 1 << 16
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


def file_name(inside: Path) -> str:
    """Return the file name under which a browser saves the archive of the folder `inside` a store.
    It has letters, digits, `.`, `_` and `-` only, because it stands in a header of the answer."""
    return _NOT_IN_A_NAME.sub("_", "-".join(inside.parts)) + ARCHIVE


def packed(folder: Path, name: str) -> Iterator[bytes]:
    """Yield the archive of a folder in blocks, with its files under `name`. Symbolic links are left
    out, because they may point outside. Raises OSError when a file cannot be read to its end, so
    that the client sees that the archive is incomplete."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    with tempfile.TemporaryFile() as into:
        with tarfile.open(fileobj=into, mode="w|gz") as archive:
            for file in files:
                with open_file(file, sparse=True) as opened:
                    inside = f"{name}/{file.relative_to(folder)}"
                    archive.addfile(archive.gettarinfo(arcname=inside, fileobj=opened), opened)
        into.seek(0)
        while block := into.read(_BLOCK_BYTES):
            yield block
