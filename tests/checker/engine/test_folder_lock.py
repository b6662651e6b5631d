"""Two commands at the same time on one run folder: the second waits for the first."""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, get_ident

import pytest

from checker.engine import folder_lock, local
from checker.engine.folder_lock import locked
from checker.engine.local import LocalExecutor, RunToJudge, check_run, check_runs
from checker.formats.errors import CheckerError
from reports import build
from tests.support.checker.story import Story
from tests.support.python_process import PythonProcess

WAIT_S = 60.0
HOLDS = """
import fcntl, os, signal, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
signal.pause()
"""
COMMANDS: dict[str, Callable[[Path, Path | None], object]] = {
    "check": lambda run, out: check_runs([run], out=out, again=False)[0],
    "writing": lambda run, _: check_run(run, write=True),
    "page": lambda run, _: build(run),
}


@pytest.mark.parametrize(
    ("second", "apart"), [("check", 0), ("check", 1), ("page", 0), ("writing", 0)]
)
def test_a_second_command_waits_for_the_verdict(
    second: str, apart: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        (first,) = local.check([run], executor, out=out)
        found = begun[0].result(WAIT_S)
    # The second verdict of `check` is the kept one of the first: nothing is judged twice.
    assert found == (run / "report.html" if second == "page" else first)


def test_a_command_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    story = Story()
    story.busy()
    run = story.write(tmp_path / "run")
    monkeypatch.setattr(folder_lock, "WAIT_S", 0.2)
    with PythonProcess("-c", HOLDS, run) as holder:
        holder.line()
        holder.send_signal(signal.SIGSTOP)
        try:
            for command in COMMANDS.values():
                with pytest.raises(CheckerError) as stopped:
                    command(run, None)
                assert stopped.value.exit_code == 70
                (said,) = capfd.readouterr().err.splitlines()
                for sentence in (said, str(stopped.value)):
                    assert f"(process {holder.pid})" in sentence
                    assert str(run) in sentence
            assert check_run(run).run == "story"
        finally:
            holder.kill()
    check_run(run, write=True)


def test_a_folder_is_held_once_and_needs_no_lock_to_be_judged(tmp_path: Path) -> None:
    with locked([tmp_path, tmp_path / ".", tmp_path / "missing"]), locked([tmp_path / "missing"]):
        pass
    with locked([tmp_path]):
        assert not [*tmp_path.iterdir()]
