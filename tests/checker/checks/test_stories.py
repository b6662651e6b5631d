"""Stories of a few lines, and what the checker finds in each (`stories/*.txt`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.checker import story_text
from tests.support.checker.story_text import Told, stories


@pytest.mark.parametrize("told", stories(), ids=str)
def test_story(told: Told, tmp_path: Path) -> None:
    told.check(tmp_path)


def test_each_story_has_a_name_of_its_own() -> None:
    assert {name: n for name, n in Counter(map(str, stories())).items() if n > 1} == {}


SHORT = """let two promise contiguous_offsets=False; send 10 at=0; send 20 at=1

# a loss
two; poll {read} start=0
finds {found}
says lost {said}
"""


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, **parts: str) -> Told:
    monkeypatch.setattr(story_text, "FOLDER", folder)
    (folder / "short.txt").write_text(SHORT.format(**parts))
    (told,) = stories("short")
    return told


@pytest.mark.parametrize("found", ["lost 2 @0", "lost 1 @1", "lost 1", "nothing", "vanished 1 @0"])
def test_a_wrong_expectation_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    told = written(tmp_path, monkeypatch, read="1:20", found=found, said="old")
    with pytest.raises(AssertionError, match=r"'a loss', stage 1: .*'lost 1 @0, poll-skip 1 @1'"):
        told.check(tmp_path / "run")


def test_an_update_writes_sentences_and_no_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = written(
        tmp_path, monkeypatch, read="1:20", found="lost 1 @0, poll-skip 1 @1", said="old"
    )
    with pytest.raises(AssertionError):
        told.check(tmp_path / "run")
    assert story_text.main([]) == 1
    assert story_text.main(["--update"]) == 0
    (told,) = stories("short")
    told.check(tmp_path / "run")
    told = written(tmp_path, monkeypatch, read="1:20", found="lost 7 @0", said="old")
    story_text.main(["--update"])
    (told,) = stories("short")
    assert told.stages[0].expected["finds"] == ["lost 7 @0"]


def test_a_story_may_open_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_text, "FOLDER", tmp_path)
    (tmp_path / "short.txt").write_text("# a send\nsend 10 at=0\nfinds lost 9\nsays lost old\n")
    assert story_text.main(["--update"]) == 0
    (told,) = stories("short")
    assert told.stages[0].expected == {"finds": ["lost 9"], "says": ["lost"]}
