"""A temporary folder is removed when its owner is gone, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.engine.folder_lock import OwnedFolder, sweep
from tests.support.python_process import PythonProcess

HOLD = """
import sys
from pathlib import Path
from checker.engine.folder_lock import OwnedFolder
folder = OwnedFolder("made-", Path(sys.argv[1]))
(folder.path / "deep").mkdir()
print(folder.path, flush=True)
sys.stdin.readline()
"""


@pytest.mark.integration
def test_a_killed_owner_leaves_nothing_for_long(tmp_path: Path) -> None:
    (tmp_path / "made-by-somebody").mkdir()
    (tmp_path / "other").mkdir()
    owner = PythonProcess("-c", HOLD, tmp_path)
    held = Path(owner.line())
    mine = OwnedFolder("made-", tmp_path)
    assert (held / "deep").is_dir(), "its owner lives"
    owner.kill()
    owner.communicate()
    sweep("made-", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [mine.path.name, "made-by-somebody", "other"]
    )
    mine.close()
    assert not mine.path.exists()
    sweep("made-", tmp_path / "missing")
