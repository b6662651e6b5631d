"""Small histories of other tools, each with what is right: no verdict on them may be another.

`cases/truth.json` says of each what it holds and why; the names of its promises are there too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from checker.engine.local import check_run
from checker.ingest.external_history import run_folder_of
from harness.runs.run_paths import promise_in

CASES: Final = Path(__file__).parent / "cases"
TRUTH: Final[dict[str, dict[str, Any]]] = json.loads((CASES / "truth.json").read_text())


@pytest.mark.parametrize("name", TRUTH)
def test_the_verdict_is_right(tmp_path: Path, name: str) -> None:
    about = TRUTH[name]
    shutil.copyfile(CASES / name, tmp_path / name)
    promise = {"promise": promise_in(CASES / about["promise"])} if "promise" in about else {}
    result = check_run(run_folder_of(tmp_path / name, **promise))
    assert str(result.verdict) in about.get("accept", about["expect"].split("|")), about["why"]
