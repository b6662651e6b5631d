"""A temporary folder is removed when its owner is gone, and not before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.formats.owned_folder import PREFIX, OwnedFolder, sweep
from tests.support.python_process import PythonProcess

HOLD = """
import sys
from pathlib import Path
from node.formats.owned_folder import OwnedFolder
folder = OwnedFolder(Path(sys.argv[1]))
(folder.path / "deep").mkdir()
print(folder.path, flush=True)
sys.stdin.readline()
"""


def test_only_its_user_may_enter_it_and_it_stays_for_as_long_as_its_owner(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}left" / "deep").mkdir(parents=True)
    with OwnedFolder(tmp_path) as first:
        assert list(tmp_path.iterdir()) == [first]
        assert first.stat().st_mode & 0o777 == 0o700
        second = OwnedFolder(tmp_path)
        if not (child := os.fork()):
            second.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert set(tmp_path.iterdir()) == {first, second.path}
        second.close()
        assert list(tmp_path.iterdir()) == [first]
    assert list(tmp_path.iterdir()) == []
    sweep(tmp_path / "missing")


@pytest.mark.integration
@pytest.mark.parametrize("killed", [False, True])
def test_its_owner_leaves_nothing_for_long(tmp_path: Path, *, killed: bool) -> None:
    (tmp_path / "floodmark-results").mkdir()
    owner = PythonProcess("-c", HOLD, tmp_path)
    held = Path(owner.line())
    mine = OwnedFolder(tmp_path)
    assert (held / "deep").is_dir(), "its owner lives"
    if killed:
        owner.kill()
    owner.communicate()
    assert held.exists() == killed
    sweep(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {mine.path.name, "floodmark-results"}
    mine.close()
    assert not mine.path.exists()
