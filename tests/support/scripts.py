"""Scripts: text files of commands, each followed by what the brokers did (indented).

    stage controller min_isr=1          the stage that knows the commands, and its options
    begin wait 500                      a command that every case begins with
    # What the file is about.

    == with one replica in sync         a case: it begins on a stage of its own
    with protocol=kip-279               options of this case
    under kafka, bug=kafka bugs=M4      variants (`name` or `name=protocol options`)
    fence n1
      n2 leads epoch 2                  every variant did this
      bug | n1 stays                    only this variant did

A command is a method of the stage (`power-cut` calls `power_cut`), `name=value` a keyword. A method
returns lines of output; `observe` of the stage, else its `_lines`, say what else happened. To write
the output of a new script, and to review the difference after a change:

    python -m tests.support.scripts --rewrite FILE..."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Options = dict[str, Any]


@dataclass
class Case:
    """One case of a script file. `header` has the lines (word, value) before the first case."""

    path: Path
    title: str
    header: list[tuple[str, str]]
    lines: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.path.stem}: {self.title}" if self.title else self.path.stem

    def _of(self, word: str) -> str:
        here = (one[len(word) + 1 :] for one in self.lines if one.startswith(f"{word} "))
        return next(here, self.value(word))

    def value(self, word: str) -> str:
        """Return the value of a line of the header, "" without one."""
        return next((value for name, value in self.header if name == word), "")

    @property
    def variants(self) -> dict[str, Options]:
        """The options of each variant; a case without variants has one, without a name."""
        stage, *words = self.value("stage").split()
        bug = {"bug": self.value("bug")} if self.value("bug") else {}
        common = {"stage": stage} | bug | options_of(words) | options_of(self._of("with").split())
        found = {}
        for text in self._of("under").split(", "):
            name, *more = text.split() or [""]
            name, _, protocol = name.partition("=")
            named = {"protocol": protocol or name} if name else {}
            found[name] = common | named | options_of(more)
        return found

    @property
    def commands(self) -> list[str]:
        """The commands, without the output."""
        return [one for one in self.lines if one.strip() and is_command(one)]

    def played(self) -> list[str]:
        """Return the case with the output that it has now; comments and empty lines stay."""
        played = {name: play(self, **options)[1] for name, options in self.variants.items()}
        return self.with_output(played)

    def with_output(self, outputs: dict[str, list[list[str]]]) -> list[str]:
        """Return the lines of the case with the output of each command, by variant."""
        found, at = [], 0
        for line in self.lines:
            if line.startswith("  "):
                continue
            found.append(line)
            if line.strip() and is_command(line):
                found += merged({name: output[at] for name, output in outputs.items()})
                at += 1
        return found


def is_command(line: str) -> bool:
    """Return whether a line of a case is neither output nor a comment nor about variants."""
    return not line.startswith((" ", "#", "with ", "under "))


def options_of(words: Iterable[str]) -> Options:
    """`name=value` as keyword arguments; numbers are numbers."""
    found: Options = {}
    for name, _, value in (word.partition("=") for word in words):
        found[name] = _value(value)
    return found


def _value(word: str) -> int | str:
    if word == "false":
        return False
    return int(word) if word.removeprefix("-").isdigit() else word


def read(path: Path) -> list[Case]:
    head, *rest = path.read_text().rstrip("\n").split("\n== ")
    lines = head.splitlines()
    end = lines.index("") if "" in lines else len(lines)
    words = [one.partition(" ") for one in lines[:end] if not one.startswith("#")]
    header = [(word, value) for word, _, value in words]
    found = [Case(path, "", header, lines[end + 1 :])] if lines[end + 1 :] else []
    for text in rest:
        title, *body = text.splitlines()
        found.append(Case(path, title, header, body))
    return found


def beside(file: str) -> list[Case]:
    """Return the cases of the folder `scripts` beside a module of tests."""
    paths = sorted((Path(file).parent / "scripts").glob("*.txt"))
    cases = [case for path in paths for case in read(path)]
    assert len({case.name for case in cases}) == len(cases), "two cases have the same name"
    return cases


def proving(cases: list[Case]) -> Callable[[Case], None]:
    """Return the test that each case has commands, and that all do what its file says."""

    @pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
    def test_script(case: Case) -> None:
        assert case.commands, "a script without commands proves nothing"
        is_storm = case.value("stage") == "storm"
        assert not is_storm or "run" in case.commands, "a storm that is not run proves nothing"
        assert case.played() == case.lines

    return test_script


def make(stage: str, **options: Any) -> Any:
    """Return a stage: `hub` is `HubStage` of `tests.support.stage_hub`."""
    module = importlib.import_module(f"tests.support.stage_{stage}")
    return getattr(module, f"{stage.title()}Stage")(**options)


def play(case: Case, stage: str, **options: Any) -> tuple[Any, list[list[str]]]:
    """Return the stage after a case, and the output of each command."""
    made = make(stage, **options)
    for word, command in case.header:
        if word == "begin":
            act(made, command)
    return made, [act(made, command) for command in case.commands]


def act(stage: Any, command: str) -> list[str]:
    """Carry out one command; returns what happened."""
    name, *words = command.split()
    method = getattr(stage, name.replace("-", "_"))
    positional = [_value(word) for word in words if "=" not in word]
    said = method(*positional, **options_of(word for word in words if "=" in word))
    lines = [said] if isinstance(said, str) else list(said or ())
    observe = getattr(type(stage), "observe", _noted)
    return [f"  {line}" for line in [*lines, *observe(stage)]]


def _noted(stage: Any) -> list[str]:
    """Take the lines that a stage has noted."""
    noted = vars(stage).get("_lines", [])
    return [noted.pop(0) for _ in range(len(noted))]


def merged(outputs: dict[str, list[str]]) -> list[str]:
    """One output for all variants, with their names at lines that others do not have."""
    if len({*map(tuple, outputs.values())}) == 1:
        return next(iter(outputs.values()))
    names: dict[tuple[str, ...], list[str]] = {}
    for name, lines in outputs.items():
        names.setdefault(tuple(lines), []).append(name)
    return [
        f"  {', '.join(same)} | {line.strip() or '-'}"
        for lines, same in names.items()
        for line in lines or ("",)
    ]


def rewrite(path: Path) -> None:
    """Write a file again with the output that it has now."""
    head, *_ = path.read_text().split("\n== ")
    cases = read(path)
    if cases and not cases[0].title:
        head = f"{head[: head.index(chr(10) * 2)]}\n\n" + "\n".join(cases.pop(0).played()) + "\n"
    parts = [head.rstrip("\n")] + ["\n".join([f"== {c.title}", *c.played()]) for c in cases]
    path.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n")


def main(words: list[str]) -> None:
    """Print the difference, or with --rewrite write it."""
    for path in [Path(word) for word in words if word != "--rewrite"]:
        if "--rewrite" in words:
            rewrite(path)
        else:
            sys.stdout.writelines(f"{line}\n" for case in read(path) for line in case.played())


if __name__ == "__main__":
    main(sys.argv[1:])
