"""The tools that a nightly run needs are looked for on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from harness.nightly.environment import NightlyEnvironment
from nemesis import wall_clocks
from nemesis.disk import control
from nemesis.links import namespaces
from node.formats.errors import UsageError


def without_clocks() -> str:
    raise UsageError("faults of clocks need libfaketime: install it")


def test_each_missing_tool_is_looked_for_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FLOODMARK_JAVA", "system")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(namespaces, "_SYSTEM_FOLDERS", str(tmp_path))
    monkeypatch.setattr(wall_clocks, "library", without_clocks)
    monkeypatch.setattr(control, "why_impossible", lambda: "no FUSE")
    unused = cast("Any", None)
    found = NightlyEnvironment(tmp_path, tmp_path / "out", unused, unused, spark=False)
    missing = found.missing_tools()
    assert sorted(missing) == ["FUSE", "Java", "libfaketime", "nft", "strace"]
    assert all(missing.values())
