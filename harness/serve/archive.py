"""A run folder as an archive that is packed while it is sent."""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Final

from anyio import to_thread

from node.formats.reading import open_file

ARCHIVE: Final = ".tar.gz"
_BLOCK_BYTES: Final = 1 << 16
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


def file_name(inside: Path) -> str:
    """Return the file name under which a browser saves the archive of the folder `inside` a store.
    It has letters, digits, `.`, `_` and `-` only, because it stands in a header of the answer."""
    return _NOT_IN_A_NAME.sub("_", "-".join(inside.parts)) + ARCHIVE


def pack(folder: Path, name: str, into: IO[bytes]) -> None:
    """Write a folder into the open file `into` as an archive, with its files under `name`. Symbolic
    links are left out, because they may point outside. Raises OSError when a file cannot be read to
    its end."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    with tarfile.open(fileobj=into, mode="w|gz") as archive:
        for file in files:
            with open_file(file, sparse=True) as opened:
                inside = f"{name}/{file.relative_to(folder)}"
                archive.addfile(archive.gettarinfo(arcname=inside, fileobj=opened), opened)


async def packed(folder: Path, name: str) -> AsyncIterator[bytes]:
    """Yield the archive of a folder in blocks, made by a thread that waits for its reader. Raises
    OSError if the archive cannot be finished, so that the client sees that it is incomplete. When
    the client disconnects, the thread ends at its next block."""
    outlet, inlet = os.pipe()
    failed: list[Exception] = []

    def write() -> None:
        try:
            with os.fdopen(inlet, "wb") as into:
                pack(folder, name, into)
        except (OSError, ValueError, tarfile.TarError) as error:
            failed.append(error)

    writer = threading.Thread(target=write, name="pack", daemon=True)
    writer.start()
    try:
        while block := await to_thread.run_sync(os.read, outlet, _BLOCK_BYTES):
            yield block
    finally:
        with contextlib.suppress(OSError):
            os.close(outlet)
    await to_thread.run_sync(writer.join)
    if failed:
        raise OSError(f"{folder} could not be packed: {failed[0]}")
