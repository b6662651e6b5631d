"""The sources of the project, for tests that read them: each is parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("node", "harness", "nemesis", "checker", "reports")


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a source, which several rules read."""
    return ast.parse(file.read_text(encoding="utf-8"))


def python_files(*folders: str, having: str = "") -> list[Path]:
    """Return the sources below these folders whose text has a word."""
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return [file for file in files if having in _text(file)]


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
