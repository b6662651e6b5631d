"""Two commands at the same time on one run folder: the second waits for the first."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, get_ident

import pytest

from checker.engine import plan
from checker.engine.folder_lock import locked
from checker.engine.local import LocalExecutor, check_runs
from checker.engine.plan import RunToJudge
from reports import build
from tests.support.checker.story import Story

WAIT_S = 60.0
COMMANDS: dict[str, Callable[[Path, Path | None], object]] = {
    "check": lambda run, out: check_runs([run], out=out, again=False)[0],
    "page": lambda run, _: build(run),
}


@pytest.mark.parametrize(("second", "apart"), [("check", False), ("check", True), ("page", False)])
def test_a_second_command_waits_for_the_verdict(
    second: str, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    story.busy()
    run, out = story.write(tmp_path / "run"), tmp_path / "out" if apart else None
    asked, flock, this = Event(), fcntl.flock, get_ident()
    begun: list[Future[object]] = []

    def told(descriptor: int, kind: int) -> None:
        if get_ident() != this:
            asked.set()
        flock(descriptor, kind)

    def executor(runs: Sequence[RunToJudge]) -> LocalExecutor:
        begun.append(pool.submit(COMMANDS[second], run, out))
        assert asked.wait(WAIT_S)
        assert not begun[0].done()
        return LocalExecutor(runs)

    monkeypatch.setattr(fcntl, "flock", told)
    with ThreadPoolExecutor(1) as pool:
        (first,) = plan.check([run], executor, out=out)
        found = begun[0].result(WAIT_S)
    # The second verdict is the kept one of the first: nothing is judged twice.
    assert found == (first if second == "check" else run / "report.html")


def test_a_folder_is_held_once_and_needs_no_lock_to_be_judged(tmp_path: Path) -> None:
    with locked([tmp_path, tmp_path / ".", tmp_path / "missing"]), locked([tmp_path / "missing"]):
        pass
    with locked([tmp_path]):
        assert not [*tmp_path.iterdir()]
