"""A temporary folder is removed when its owner is gone, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checker.engine.owned_folder import OwnedFolder, sweep

HOLD = """
import sys
from pathlib import Path
import pytest

from checker.engine.owned_folder import OwnedFolder
folder = OwnedFolder("made-", Path(sys.argv[1]))
(folder.path / "deep").mkdir()
print(folder.path, flush=True)
sys.stdin.readline()
"""


@pytest.mark.integration
def test_a_killed_owner_leaves_nothing_for_long(tmp_path: Path) -> None:
    (tmp_path / "made-by-somebody").mkdir()
    (tmp_path / "other").mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    held = Path(owner.stdout.readline().strip())
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
