"""Every option and argument of every command refuses what it cannot use, in one sentence."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
import typer

from harness.cli import main
from harness.cli.values import (
    CORES,
    ExistingFolder,
    HeapSize,
    Number,
    Readable,
    ValueKind,
    Whole,
    WritableFile,
    WritableFolder,
)
from node.formats.errors import UsageError


class Given(NamedTuple):
    """A parameter of a command: the words before it, the option ("" for an argument), its kind."""

    command: tuple[str, ...]
    option: str
    kind: ValueKind

    @property
    def id(self) -> str:
        """Names it in the output of a test."""
        return " ".join((*self.command, self.option))


def functions(
    app: typer.Typer, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    """All commands and what carries them out, also those that have subcommands."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield (*words, command.name or command.callback.__name__), command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        own = (*words, str(group.name))
        if (callback := group.typer_instance.registered_callback) is not None:
            assert callback.callback is not None
            yield own, callback.callback
        yield from functions(group.typer_instance, own)


def parameters() -> Iterator[tuple[str, Any, Any, Given | None]]:
    """All parameters: a name, the type, the typer information, and what takes its values."""
    for words, function in functions(main.assemble()):
        hints = get_type_hints(function, include_extras=True)
        for name, hint in hints.items():
            if name in ("return", "context", "ctx"):
                continue
            base, *extras = get_args(hint)
            (about,) = extras
            taken = inspect.getclosurevars(about.callback).nonlocals if about.callback else {}
            given = None
            if "kind" in taken:
                is_option = type(about).__name__ == "OptionInfo"
                named = [d for d in (about.default, *(about.param_decls or ())) if _is_flag(d)]
                option = named[0] if named else f"--{name.replace('_', '-')}"
                given = Given(words, option if is_option else "", taken["kind"])
            yield f"{' '.join(words)} {name}", base, about, given


def _is_flag(text: object) -> bool:
    return isinstance(text, str) and text.startswith("--")


GIVEN = [given for _, _, _, given in parameters() if given is not None]


def test_every_number_and_every_path_is_bounded_or_examined() -> None:
    bare = [
        name
        for name, base, _, given in parameters()
        if given is None and {int, float, Path} & {base, *get_args(base)}
    ]
    assert bare == []
    assert {type(given.kind) for given in GIVEN} == {
        *(Number, Whole, HeapSize, Readable, ExistingFolder, WritableFile, WritableFolder)
    }


def wrong(kind: ValueKind, tmp_path: Path) -> list[str]:
    """Values that a kind must refuse."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir(exist_ok=True)
    match kind:
        case HeapSize():
            return ["much", "0g", "3t", "-1g", "9" * 9 + "g"]
        case Number():
            outside = [str(kind.most + 1), str(kind.least - 1)]
            outside += [str(kind.least)] * kind.above
            half = ["1.5"] if isinstance(kind, Whole) else []
            return [*outside, *half, "nan", "inf", "-inf", "1e999", "9" * 400, "three", ""]
        case ExistingFolder():
            return ["missing", "file", "file/below", "", "/dev/null", "x" * 5000]
        case Readable():
            return ["", "/dev/null", "x" * 5000]
        case WritableFile():
            return ["folder", "missing/file", "file/below", "", "x" * 5000]
        case WritableFolder():
            return ["file", "file/below", "", "x" * 5000]
    raise AssertionError(f"no wrong value of {kind}")


@pytest.fixture(scope="module")
def assembled() -> Callable[..., object]:
    """The command line, put together once: that takes longer than to refuse a value."""
    return typer.main.get_command(main.assemble())


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: given.id)
def test_a_value_that_cannot_be_used_is_one_sentence_and_exit_code_64(
    given: Given,
    assembled: Callable[..., object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "assemble", lambda _: assembled)
    for text in wrong(given.kind, tmp_path):
        has_argument = given.option and given.command in [("check",), ("report",), ("replay",)]
        needed = ["nothing"] if has_argument else []
        words = [f"{given.option}={text}"] if given.option else ["--", text]
        with pytest.raises(SystemExit) as ended:
            main.main([*given.command, *needed, *words])
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (64, ""), (words, said)
        assert said.err.startswith("floodmark: "), words
        assert said.err.count("\n") == 1, words
        assert len(said.err) < 400, words
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Whole(1, 99), "3", 3),
        (Whole(1000, 10**9), "1e6", 1_000_000),
        (CORES, "0", 0),
        (Number(0, 5, above=True), "0.5", 0.5),
        (HeapSize(), "", ""),
        (HeapSize(), "512m", "512m"),
        (Readable(), "no-such-schedule", Path("no-such-schedule")),
        (WritableFolder(), "new/store", Path("new/store")),
        (WritableFile(), "new.md", Path("new.md")),
    ],
)
def test_other_values_are_taken(
    kind: ValueKind, text: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert kind.convert(text, "--it") == value


@pytest.mark.parametrize("kind", [Readable(), ExistingFolder(), WritableFolder()])
def test_a_folder_without_permission_is_refused(
    kind: ValueKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    how = "written" if isinstance(kind, WritableFolder) else "read"
    with pytest.raises(UsageError, match=f"^{tmp_path}: cannot be {how}: Permission denied"):
        kind.convert(str(tmp_path), "--store")
