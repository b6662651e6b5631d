"""Children that a template forks are those of the process that asked, with what it has."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import multiprocess
import pytest

from node.runtime import children, template
from node.runtime.template import ForkedChild, Template
from tests.support.python_process import PythonProcess
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Template]:
    """Yield the template of this test."""
    monkeypatch.setattr(template, "_template", None)
    template.prepare(("node.runtime.children",))
    made = template.fitting()
    assert made is not None
    yield made
    made.close()


def begin(code: object, **options: Any) -> tuple[children.Child, Any]:
    """Return a child that says what it has, and ends with `code` on command."""
    near, far = multiprocess.Pipe()
    child = children.start("child", say, os.getpid(), far, code, **options)
    far.close()
    return child, near


def say(parent_pid: int, pipe: Any, code: object) -> None:
    """Write the output of the child."""
    children.die_with_parent(parent_pid)
    pending = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pipe.send((os.getppid(), os.getcwd(), os.environ.get("SAID"), pending))
    pipe.recv()
    sys.exit(code)  # type: ignore[arg-type]


def ended(child: children.Child, pipe: Any) -> int | None:
    """Let a child end, and return its exit code."""
    pipe.send("end")
    child.join(PATIENCE_S)
    return child.exitcode


def heard(pipe: Any) -> Any:
    assert pipe.poll(PATIENCE_S)
    return pipe.recv()


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (7, 7), ("a sentence", 1), (None, 0)])
def test_a_forked_child_has_its_own_exit_code(
    prepared: Template, code: object, exit_code: int
) -> None:
    child, pipe = begin(code)
    assert isinstance(child, ForkedChild)
    assert heard(pipe)[0] == os.getpid()
    assert child.is_alive()
    assert ended(child, pipe) == exit_code
    with pytest.raises(EOFError):
        pipe.recv()
    child.close()


def test_a_signal_ends_it_and_is_its_exit_code(prepared: Template) -> None:
    child, pipe = begin(0)
    heard(pipe)
    with pytest.raises(ValueError, match="still runs"):
        child.close()
    child.kill()
    child.join(PATIENCE_S)
    assert not Path(f"/proc/{child.pid}").exists(), "it is reaped"
    assert child.exitcode == -signal.SIGKILL
    child.kill()


def test_it_has_the_folder_the_variables_and_the_signals_of_the_moment(
    prepared: Template, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAID", "now")
    child, pipe = begin(0, blocked=(signal.SIGUSR2,))
    assert isinstance(child, ForkedChild)
    assert heard(pipe) == (os.getpid(), str(tmp_path), "now", {signal.SIGUSR2})
    child.kill()
    child.join()


def test_variables_of_the_loader_need_a_fresh_interpreter(
    prepared: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_BIND_NOW", "1")
    assert template.fitting() is None
    child, pipe = begin(0)
    assert not isinstance(child, ForkedChild)
    assert heard(pipe)[0] == os.getpid()
    child.kill()
    child.join()


def test_without_its_template_a_child_starts_all_the_same(prepared: Template) -> None:
    prepared.close()
    assert template.fitting() is None
    child, pipe = begin(3)
    heard(pipe)
    assert ended(child, pipe) == 3


def test_a_template_that_answers_too_late_is_not_asked_again(prepared: Template) -> None:
    """Its late answer would be taken for that of the next request."""
    os.kill(prepared._process.pid, signal.SIGSTOP)
    prepared._socket.settimeout(0.01)
    child, pipe = begin(3)
    assert not isinstance(child, ForkedChild)
    assert template.fitting() is None
    heard(pipe)
    assert ended(child, pipe) == 3


def test_a_child_that_nobody_waits_for_does_not_begin(tmp_path: Path) -> None:
    """The process that asked has given up, and started another in its place."""
    ours, theirs = socket.socketpair()
    ours.shutdown(socket.SHUT_WR)
    call = pickle.dumps((Path.touch, (tmp_path / "begun",)))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    request = template._Request("child", call, str(tmp_path), dict(os.environ), (), files)
    with template._subreaper(), pytest.raises(EOFError):
        template.fork_on_request(theirs, request, ())
    (pid,) = template._LENGTH.unpack(ours.recv(template._LENGTH.size))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == template._FAILED
    assert not (tmp_path / "begun").exists()
    ours.close()
    theirs.close()


def test_children_outlive_their_template(prepared: Template) -> None:
    child, pipe = begin(5)
    heard(pipe)
    template.prepare(("node.runtime.children", "json"))
    assert template.fitting() not in (None, prepared)
    assert ended(child, pipe) == 5
    again = template.fitting()
    assert again is not None
    again.close()


def test_nobody_else_becomes_the_parent_of_orphans(prepared: Template) -> None:
    child, pipe = begin(0)
    heard(pipe)
    script = "import os, sys; os.fork() and os._exit(0); os.read(0, 1); print(os.getppid())"
    orphan = PythonProcess("-c", script)
    orphan.wait()
    said, _ = orphan.communicate("\n", timeout=PATIENCE_S)
    assert int(said) != os.getpid()
    child.kill()
    child.join()
