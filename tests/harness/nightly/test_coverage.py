"""A nightly run says which tools it misses, each of them, and what it did not do without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from harness.nightly.night import NightlyEnvironment
from harness.nightly.summary import EXIT_UNFINISHED
from node.formats.errors import UsageError
from node.formats.host_tools import FAKETIME, ONLY_FOLDER
from tests.support import trial_adapters
from tests.support.fake_tools import make_tools
from tests.support.nightly_fakes import NightlyRuns

TOOLS = {"Java": "java", "libfaketime": FAKETIME, "nft": "nft", "strace": "strace"}
JAVA = "echo 'java.specification.version = 21 '"


@pytest.mark.parametrize("tool", [None, *TOOLS])
def test_a_tool_that_is_taken_away_is_missed(
    tool: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = cast("Any", None)
    asked = NightlyEnvironment(tmp_path, tmp_path / "out", 1, unused, unused)
    folder = make_tools(tmp_path / "tools", *TOOLS.values(), says=JAVA)
    if tool:
        (folder / TOOLS[tool]).unlink()
    monkeypatch.setenv(ONLY_FOLDER, str(folder))
    missing = asked.missing_tools()
    assert missing.pop("FUSE").startswith("there can be no disk in user space: ")
    assert list(missing) == ([tool] if tool else [])
    assert all(missing.values())


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
    assert store.nightly(systems=f"{name}+speed=fast", budget_s=900.0) == EXIT_UNFINISHED
    said = capsys.readouterr().out
    assert f"not covered no storm on real processes proved anything about {name} speed=fast" in said
    assert "its server is not on PATH" in said
