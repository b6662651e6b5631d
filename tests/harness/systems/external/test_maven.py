"""A server that Maven has is gathered once, and never taken with another checksum."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from harness.systems.external import versions
from node.formats.errors import FloodmarkError
from node.formats.host_tools import ONLY_FOLDER

MAVEN = """#!/bin/sh
echo "$@" >> {calls}
cp pom.xml {calls}.pom
[ -d {jars} ] || {{ echo 'Could not find artifact' >&2; exit 1; }}
for last; do :; done
cp -r {jars} "${{last#-DoutputDirectory=}}"
"""
JARS = {"a-1.jar": b"one", "b-2.jar": b"two"}


@pytest.fixture(autouse=True)
def _maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put a store of its own in place, and a client that has two files."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "environment"))
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin" / "mvn"
    client.write_text(MAVEN.format(calls=tmp_path / "calls", jars=tmp_path / "jars"))
    client.chmod(0o755)
    monkeypatch.delenv(ONLY_FOLDER, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(versions, "TABLE", tmp_path / "servers.txt")
    listed = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(JARS.items())
    )
    pin = hashlib.sha256(listed.encode()).hexdigest()
    versions.TABLE.write_text(f"kafka 4.4.0 mvn org:core:4.4.0,org.log:log:1.7 {pin}\n")


def serve(tmp_path: Path, jars: dict[str, bytes]) -> None:
    (tmp_path / "jars").mkdir()
    for name, data in jars.items():
        (tmp_path / "jars" / name).write_bytes(data)


def test_files_are_gathered_once(tmp_path: Path) -> None:
    serve(tmp_path, JARS)
    server = versions.obtain("kafka", "4.4.0")
    assert sorted(file.name for file in (server.parent / "libs").iterdir()) == sorted(JARS)
    told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == "4.4.0\n"
    assert versions.obtain("kafka", "4.4.0") == server == versions.executable_of("kafka", "4.4.0")
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    asked = (tmp_path / "calls.pom").read_text()
    assert "<artifactId>core</artifactId><version>4.4.0</version>" in asked
    assert "<groupId>org.log</groupId><artifactId>log</artifactId>" in asked


@pytest.mark.parametrize(
    "jars", [{**JARS, "a-1.jar": b"other"}, {"a-1.jar": b"one"}, {**JARS, "c-3.jar": b"three"}]
)
def test_other_files_are_not_used(jars: dict[str, bytes], tmp_path: Path) -> None:
    serve(tmp_path, jars)
    with pytest.raises(FloodmarkError, match="it was changed"):
        versions.obtain("kafka", "4.4.0")
    assert not list((tmp_path / "environment").rglob("*.jar"))


def test_the_words_of_the_client_are_passed_on() -> None:
    with pytest.raises(FloodmarkError, match=r"mvn could not fetch org:core.*: Could not find"):
        versions.obtain("kafka", "4.4.0")
