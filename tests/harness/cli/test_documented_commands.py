"""The command lines of README and docs: the parser takes each one, and make has each target."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from harness.cli.main import assemble
from tests.lab.__main__ import EXPERIMENTS
from tests.support.paths import ROOT

DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```|((?:^ {4}\S.*\n)+)", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"^ *(?:\$ )?(?:[\w./-]*/)?((?:floodmark|make) [^|>\n]*)", re.MULTILINE)
IN_SENTENCE = re.compile(r"`(?:[\w./-]*/)?((?:floodmark|make) [^`]+)`")
NO_COMMANDS = {"--help", "--install-completion", "COMMAND", "..."}
UNFINISHED = re.compile("Missing parameter|requires an argument")
"""A sentence may name a command without its argument, and an option without its value."""


def documented() -> Iterator[tuple[str, list[str]]]:
    """Yield document and words of each command line, whether in a block or in a sentence."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = "\n".join(map("".join, BLOCK.findall(text)))
        for line in (*IN_BLOCK.findall(blocks), *IN_SENTENCE.findall(text)):
            plain = re.sub(r"[\[\]<>]", "", re.sub(r"\bN\b", "1", line))
            yield document.name, shlex.split(plain, comments=True)


class TestTheParser:
    app = get_command(assemble())

    def parse(self, words: list[str]) -> None:
        """Let the parser take the words, without running the command."""
        command, name = self.app, "floodmark"
        while isinstance(command, TyperGroup) and words:
            name, command, words = command.resolve_command(self.app.context_class(command), words)
        if not isinstance(command, TyperGroup):
            command.make_context(name, list(words))

    def test_takes_each_command_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for folder in ("store", "DIR"):
            (tmp_path / folder).mkdir()
        lines = [
            (document, words[1:])
            for document, words in documented()
            if words[0] == "floodmark" and NO_COMMANDS.isdisjoint(words)
        ]
        assert len(lines) > 70
        refused = []
        for document, words in [*lines, ("wrong", ["run", "--sede"])]:
            try:
                self.parse(words)
            except Exception as error:
                refused.append(f"{document}: floodmark {' '.join(words)}: {error}")
        (wrong,) = [line for line in refused if not UNFINISHED.search(line)]
        assert "No such option: --sede" in wrong


def test_make_has_each_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = {words[1] for _, words in documented() if words[0] == "make"}
    assert len(asked) > 8
    assert asked <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_laboratory_has_each_experiment() -> None:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    asked = {name for text in texts for name in re.findall(r"tests\.lab ([a-z_-]+)", text)}
    assert set() < asked <= {*EXPERIMENTS}
