"""Signals end a command in order, and no signal ends it with a code of its own."""

from __future__ import annotations

import signal
import subprocess

import pytest

from harness.runs.interrupts import EXIT_STOPPED, Interrupts, StopNow, ended_by_signals
from tests.support.python_process import PythonProcess
from tests.support.running_harness import lives
from tests.support.waiting import PATIENCE_S, until

COMMAND = """
import os, signal, sys, time
from harness.cli import main
from harness.runs import judge
from harness.runs.interrupts import Interrupts, _leave

def wait():
    print("judging", flush=True)
    sys.stdin.readline()

def check(*_, **__):
    {body}

judge.judge = check
# A shell may have started this with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
main.main()
"""
IN_A_RUN = """with Interrupts() as interrupts:
        interrupts.at_once = True
        try:
            wait()
        finally:
            print("cleaning", flush=True)
            sys.stdin.readline()"""


def command(body: str, folder: str) -> PythonProcess:
    words = ("-c", COMMAND.format(body=body), "check", "--no-spark", folder)
    started = PythonProcess(*words, stderr=subprocess.PIPE)
    assert started.line() == "judging"
    return started


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("run")
    (made / "history.jsonl").touch()
    return str(made)


@pytest.mark.integration
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_judging_ends_with_the_code_of_a_stop(
    stop: signal.Signals, folder: str
) -> None:
    started = command("wait()", folder)
    started.send_signal(stop)
    said = started.communicate(timeout=PATIENCE_S)
    assert (said, started.returncode) == (("", "floodmark: stopped.\n"), EXIT_STOPPED)


@pytest.mark.integration
def test_signals_while_it_ends_give_no_other_code(folder: str) -> None:
    started = command(IN_A_RUN, folder)
    started.send_signal(signal.SIGTERM)
    assert started.stdout is not None
    assert started.stdout.readline() == "cleaning\n"
    for _ in range(2):
        started.send_signal(signal.SIGTERM)
    started.communicate(timeout=PATIENCE_S)
    assert started.returncode == EXIT_STOPPED


STOP_A_HELPER = """wait()
    from multiprocess import resource_tracker as helper
    helper.ensure_running()
    print(helper._resource_tracker._pid, flush=True)
    os.kill(helper._resource_tracker._pid, signal.SIGSTOP)
    """


@pytest.mark.integration
@pytest.mark.parametrize(
    "end", ["raise KeyError", "signal.raise_signal(signal.SIGTERM)", "_leave(0, 0)"]
)
def test_a_helper_that_is_stopped_while_the_command_ends_does_not_outlive_it(
    end: str, folder: str
) -> None:
    said, _ = command(STOP_A_HELPER + end, folder).communicate(timeout=PATIENCE_S)
    until(lambda: not lives(int(said)), "the end of the helper")


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_handlers_are_as_before_afterwards() -> None:
    before = handlers()
    with ended_by_signals(for_good=False):
        with pytest.raises(StopNow):
            stop_twice()
        assert handlers()[0] is handlers()[1], "the command is ending"
    assert handlers() == before
    with pytest.raises(StopNow):
        stop_twice()
    assert handlers() == before


def stop_twice() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.asked
        assert interrupts.terminated
        signal.raise_signal(signal.SIGTERM)
