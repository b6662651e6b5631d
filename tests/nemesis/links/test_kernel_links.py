"""Links made of namespaces and packet filters, for an ordinary user."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from nemesis.links import namespaces
from nemesis.links.abilities import KERNEL
from nemesis.links.kernel_links import KernelLinks
from node.formats.errors import FloodmarkError, UsageError
from node.formats.host_tools import ONLY_FOLDER
from tests.support import python_process
from tests.support.fake_tools import make_tools
from tests.support.python_process import PythonProcess
from tests.support.waiting import until

RIG = ("-m", "tests.support.kernel_rig")


@pytest.mark.integration
@pytest.mark.needs("nft")
def test_rules_drop_and_reset_by_sender_and_receiver() -> None:
    done = python_process.run(*RIG, "faults")
    assert done.returncode == 0, done.stderr
    expected = Path(__file__).with_name("kernel_rules.json").read_text()
    assert json.loads(done.stdout) == json.loads(expected)


@pytest.mark.integration
@pytest.mark.needs("nft")
def test_nothing_is_left_of_a_run_that_is_killed() -> None:
    run = PythonProcess(*RIG, "wait")
    told = json.loads(run.line())
    assert len(told["namespaces"]) == 4
    assert os.stat("/proc/self/ns/net").st_ino not in told["namespaces"]
    run.kill()
    run.communicate()

    def left() -> set[int]:
        found = set()
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                found.add((process / "ns/net").stat().st_ino)
        return found & set(told["namespaces"])

    until(lambda: not left(), "no process is in a namespace of the run")


def test_a_program_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ONLY_FOLDER, str(tmp_path))
    with pytest.raises(UsageError, match="--links kernel needs unshare: install util-linux"):
        namespaces.check_possible()


def test_a_host_that_does_not_allow_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says = "echo 'unshare: Operation not permitted' >&2; exit 1"
    make_tools(tmp_path, *namespaces.PROGRAMS, says=says)
    monkeypatch.setenv(ONLY_FOLDER, str(tmp_path))
    monkeypatch.delenv(namespaces.INSIDE, raising=False)
    with pytest.raises(UsageError) as refused:
        namespaces.check_possible()
    assert str(refused.value) == (
        "--links kernel needs user namespaces, which are not allowed here "
        "(unshare: Operation not permitted): use --links proxy"
    )


def test_outside_there_is_no_network_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(namespaces.INSIDE, raising=False)
    with pytest.raises(FloodmarkError, match="in no namespace of its own"):
        KernelLinks(("n1",), ())


def test_what_packets_cannot_do_is_not_offered() -> None:
    assert KERNEL.actions == {"drop", "reset"}
