"""A nightly run says which tools it misses, each of them, and what it did not do without them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from harness.nightly.environment import NightlyEnvironment
from harness.nightly.summary_text import EXIT_UNFINISHED
from nemesis import wall_clocks
from nemesis.disk import control
from nemesis.links import namespaces
from node.formats.errors import UsageError
from tests.support import trial_adapters
from tests.support.nightly_fakes import NightlyRuns


def without_clocks() -> str:
    raise UsageError("faults of clocks need libfaketime: install it")


PROGRAMS = {"Java": "java", "nft": "nft", "strace": "strace"}


@pytest.mark.parametrize("tool", ["FUSE", "libfaketime", *PROGRAMS])
def test_a_tool_that_is_taken_away_is_missed(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked for on this machine, alone: the others stay as they are."""
    unused = cast("Any", None)
    asked = NightlyEnvironment(tmp_path, tmp_path / "out", 1, unused, unused)
    monkeypatch.setenv("FLOODMARK_JAVA", "system")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    before = asked.missing_tools()
    for name, program in PROGRAMS.items():
        found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if found and name != tool:
            (tmp_path / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(namespaces, "_SYSTEM_FOLDERS", str(tmp_path))
    if tool == "libfaketime":
        monkeypatch.setattr(wall_clocks, "library", without_clocks)
    if tool == "FUSE":
        monkeypatch.setattr(control, "why_impossible", lambda: "no FUSE")
    missing = asked.missing_tools()
    assert missing.keys() == {*before, tool}
    assert missing[tool]


def test_a_nightly_run_without_the_server_of_a_system_is_not_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = NightlyRuns(tmp_path / "store")
    there = ["1.0"]

    def version(self: trial_adapters.Trial) -> str:
        if there:
            return there.pop()
        raise UsageError("its server is not on PATH")

    monkeypatch.setattr(trial_adapters.Trial, "version", version)
    name = f"{trial_adapters.__name__}:Trial"
    assert store.nightly(systems=f"{name}+speed=fast") == EXIT_UNFINISHED
    said = capsys.readouterr().out
    assert f"not covered no storm on real processes proved anything about {name} speed=fast" in said
    assert "its server is not on PATH" in said
