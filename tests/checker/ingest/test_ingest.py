"""Run folders that are damaged: one clear sentence each, the rest judged, never a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.formats.seal import seal_run
from tests.support.checker.story import Story
from tests.support.command import exit_code
from tests.support.scripts import beside, proving
from tests.support.stage_folder import sound

test_script = proving(beside(__file__))


def refusing(do: Callable[..., Any], is_closed: Callable[[Any], bool]) -> Callable[..., Any]:
    def asked(path: Any = ".", *args: Any, **named: Any) -> Any:
        if is_closed(path):
            raise PermissionError(13, "Permission denied", str(path))
        return do(path, *args, **named)

    return asked


@pytest.mark.parametrize("where", ["trace", "logs"])
def test_a_folder_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = sound().write(tmp_path)

    def is_closed(path: Any) -> bool:
        return isinstance(path, str | Path) and Path(path).is_relative_to(folder / where)

    monkeypatch.setattr(os, "scandir", refusing(os.scandir, is_closed))
    monkeypatch.setattr(os, "stat", refusing(os.stat, is_closed))
    result = check_run(folder)
    assert result.verdict is Verdict.UNKNOWN
    said = f"The files in {where} cannot be read: this user has no permission; grant it."
    assert said in result.problems


def test_each_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sound().write(tmp_path)
    for name in ("faults.jsonl", "exits.jsonl", "messages.jsonl", "schedule.json"):
        (folder / name).write_text("{}")
    seal_run(folder)
    opened, names = os.open, [str(p.relative_to(folder)) for p in folder.rglob("*.json*")]
    assert len(names) > 8
    for name in names:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refusing(opened, partial(eq, folder / name)))
            result = check_run(folder)
        assert result.verdict is Verdict.UNKNOWN, name
        said = [each for each in result.problems if each.startswith(f"{name} cannot be read")]
        assert said, (name, result.problems)
        assert all(each.endswith("this user has no permission; grant it.") for each in said)
        assert not [each for each in result.problems if "Errno" in each or str(folder) in each]


def test_no_such_folder(tmp_path: Path) -> None:
    result = check_run(tmp_path / "nowhere")
    assert result.verdict is Verdict.UNKNOWN
    assert "There is no run folder 'nowhere'." in result.problems


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        ({}, "invalid"),
        ({"delivery": "at-least-once"}, "valid"),
        ({"delivery": "twice"}, "Invalid enum value 'twice'"),
        ({"delivry": "at-least-once"}, "unknown field `delivry`"),
    ],
)
def test_a_history_is_judged_by_the_promise_of_its_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], promise: dict[str, str], said: str
) -> None:
    s = Story()
    s.busy()
    s.poll((0, 1_000_000, 12), (12, 1_000_000), start=0, process=99, final=True, at_end=True)
    file, stated = tmp_path / "history.jsonl", tmp_path / "promise.json"
    file.write_bytes((s.write(tmp_path / "run") / "history.jsonl").read_bytes())
    stated.write_text(json.dumps(promise))
    code = {"invalid": 1, "valid": 0}.get(said, 64)
    assert exit_code(["check", str(file), "--promise", str(stated), "--no-spark"]) == code
    assert said in "".join(capsys.readouterr())


def test_results_kept_elsewhere_are_those_that_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, other = sound().write(tmp_path / "run"), Story()
    assert exit_code(["check", str(folder), "--no-spark"]) == 0
    other.busy()
    other.poll((0, 1_000_000, 11), (11, 5), start=0)
    (folder / "history.jsonl").write_bytes(
        (other.write(tmp_path / "other") / "history.jsonl").read_bytes()
    )
    capsys.readouterr()
    assert exit_code(["check", str(folder), "--out", str(tmp_path / "out"), "--no-spark"]) == 1
    said = capsys.readouterr().out
    assert "INVALID" in said
    assert "phantom" in said
    assert " VALID" not in said
