"""Every option and argument of every command refuses what it cannot use, in one sentence."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pytest
import typer

from harness.cli import main
from harness.cli.options import Option, described, options_of, parts, request_of
from harness.cli.values import (
    Duration,
    FormattedText,
    NameAndValue,
    Number,
    OneOf,
    Readable,
    ValueKind,
    Whole,
    WritableFile,
    WritableFolder,
    kind_of,
)
from node.formats.errors import UsageError
from tests.support.command import exit_code
from tests.support.paths import ROOT


class Given(NamedTuple):
    """An option of a command, and the words before it."""

    command: tuple[str, ...]
    option: Option

    @property
    def id(self) -> str:
        """The name of the case."""
        return " ".join((*self.command, self.option.written))


def requests() -> Iterator[tuple[tuple[str, ...], type[msgspec.Struct]]]:
    """Yield the words and the request of every command and subcommand."""
    for name in main.command_names():
        module = importlib.import_module(f"harness.cli.{name}")
        yield (name,), request_of(getattr(module, name))
        for word, command in getattr(module, "SUBCOMMANDS", {}).items():
            yield (name, word), request_of(command)


EVERY = [Given(words, option) for words, request in requests() for option in options_of(request)]
GIVEN = [
    given
    for given in EVERY
    if given.option.kind and type(given.option.kind) not in (ValueKind, NameAndValue)
]


def test_each_option_is_declared_once_in_its_request() -> None:
    files = [f for f in (ROOT / "harness").rglob("*.py") if "typer.Option(" in f.read_text("utf-8")]
    assert sorted(file.name for file in files) == ["main.py", "options.py"]
    fields = [field for _, request in requests() for field in msgspec.structs.fields(request)]
    metas = {id(meta): meta.description for each in fields for meta in parts(each.type)[1]}
    below = [
        text
        for owner in {each.option.owner for each in EVERY}
        for text in described(owner).values()
    ]
    sentences = sorted([*filter(None, metas.values()), *below])
    assert len(sentences) > 80
    assert sentences == sorted(set(sentences)), "the same option, declared at two places"


def test_one_name_has_one_meaning() -> None:
    named = {(each.option.written, getattr(each.option.kind, "metavar", "")) for each in EVERY}
    names = [name for name, _ in named]
    assert sorted(names) == sorted({*names}), "a budget is a time with every command"
    assert {"--budget", "--jobs", "--seed"} <= {*names}


def wrong(kind: ValueKind, tmp_path: Path) -> list[str]:
    """Values that a kind must refuse."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir(exist_ok=True)
    match kind:
        case Duration():
            return [*["0s"] * kind.above, "9999999h", "5", "1x", "h", "-1s", "9" * 400 + "s", ""]
        case Number():
            outside = [str(kind.most + 1), str(kind.least - 1)]
            outside += [str(kind.least)] * kind.above
            half = ["1.5"] if isinstance(kind, Whole) else []
            return [*outside, *half, "nan", "inf", "-inf", "1e999", "9" * 400, "three", ""]
        case FormattedText():
            return ["", "nonsense", "local[", "spark://", "x" * 5000]
        case OneOf():
            return ["", "neither", "x" * 5000]
        case Readable():
            return ["", "/dev/null", "x" * 5000]
        case WritableFile():
            return ["folder", "missing/file", "file/below", "", "/dev/null", "x" * 5000]
        case WritableFolder():
            return ["file", "file/below", "", "x" * 5000]
    raise AssertionError(f"no wrong value of {kind}")


@pytest.fixture(scope="module")
def assembled() -> Callable[..., object]:
    """Assemble the command line once: that takes longer than to refuse a value."""
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
    option = given.option
    assert option.kind is not None
    for text in wrong(option.kind, tmp_path):
        has_argument = given.command in [("check",), ("report",), ("replay",), ("shrink",)]
        needed = ["nothing"] if has_argument and not option.is_argument else []
        words = ["--", text] if option.is_argument else [f"{option.written}={text}"]
        code = exit_code([*given.command, *needed, *words])
        said = capsys.readouterr()
        assert (code, said.out) == (64, ""), (words, said)
        assert said.err.startswith("floodmark: "), words
        assert said.err.count("\n") == 1, words
        assert len(said.err) < 400, words
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Whole(1, 99), "3", 3),
        (Whole(1000, 10**9), "1e6", 1_000_000),
        (Number(0, 5, above=True), "0.5", 0.5),
        (Number(0, 1e6, unit="s"), "10s", 10.0),
        (Number(0, 1e6, unit="s"), "1.5m", 90.0),
        (Whole(0, 1000, unit="ms"), "0.25s", 250),
        (Whole(0, 10**6, unit="MiB"), "2GB", 1907),
        (Whole(0, 10**6, unit="B"), "64KiB", 65536),
        (Duration(0, 1e6), "1h30m", 5400.0),
        (Duration(0, 1e6), "2.5m", 150.0),
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


@pytest.mark.parametrize("kind", [Readable(), WritableFolder(), WritableFile()])
def test_a_path_without_permission_is_refused(
    kind: ValueKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    path = tmp_path / "x" if isinstance(kind, WritableFile) else tmp_path
    how = "read" if isinstance(kind, Readable) else "written"
    with pytest.raises(UsageError, match=f"^{path}: cannot be {how}: this user has no perm"):
        kind.convert(str(path), "--store")


def test_a_field_with_a_choice_of_words_takes_only_these() -> None:
    kind = kind_of(Literal["sync", "async"], {}, {})
    assert kind.convert("async", "--flush") == "async"
    with pytest.raises(UsageError, match="--flush must be sync or async"):
        kind.convert("sink", "--flush")
