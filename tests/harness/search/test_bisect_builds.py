"""Servers that are built from the commits of a clone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.search.bisect import Builds
from node.formats.errors import FloodmarkError, UsageError

pytestmark = pytest.mark.integration


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone of three commits, of which the last cannot be built."""
    place = tmp_path / "clone"
    place.mkdir()
    script = """git init -q -b main . && git config user.name a && git config user.email a@b.c
        for n in 1 2 3; do echo "echo 1.$n" > source; [ $n = 3 ] && rm source && touch other
        git add -A && git commit -q -m $n && git tag v$n; done"""
    subprocess.run(["sh", "-c", script], cwd=place, check=True)
    return place


def test_each_commit_has_a_server_of_its_own(clone: Path, tmp_path: Path) -> None:
    builds = Builds(clone, "cp source server && chmod +x server", "server", tmp_path)
    commits = builds.commits(["v1..v3"])
    assert len(commits) == 3
    said = [subprocess.check_output(["sh", builds.executable(c)], text=True) for c in commits[:2]]
    assert said == ["1.1\n", "1.2\n"]
    with pytest.raises(FloodmarkError, match=f"sh could not build {commits[2]}: .*source"):
        builds.executable(commits[2])


def test_a_build_that_leaves_no_server_and_a_range_that_is_none(
    clone: Path, tmp_path: Path
) -> None:
    builds = Builds(clone, "true", "server", tmp_path)
    with pytest.raises(FloodmarkError, match="left no executable server"):
        builds.executable(builds.commits(["v1..v2"])[0])
    with pytest.raises(UsageError, match=r"one --versions A\.\.B"):
        builds.commits(["v1"])
    with pytest.raises(FloodmarkError, match="git could not read"):
        builds.commits(["v1..v9"])
    with pytest.raises(UsageError, match="--git needs --build"):
        Builds(clone, "", "server", tmp_path)
