"""The bugs that nobody planted: exact replacements in the sources of the broker (`bugs.toml`).

A bug is turned on for a whole process, before that process imports the file concerned: the file is
compiled from its changed text, and the tree stays as it is. The module imports nothing of the
project, so that it can come first.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.support.paths import ROOT

FILE: Final = Path(__file__).with_name("bugs.toml")
CLASSES: Final = ("safety", "liveness", "none")


@dataclass(frozen=True, slots=True)
class UnplantedBug:
    """One bug: `replaced` are pairs of texts, each first one once in `file`. `kind` is one of
    CLASSES, and `because` the argument for it."""

    code: str
    name: str
    file: str
    protocol: str
    kind: str
    because: str
    replaced: tuple[tuple[str, str], ...]

    @property
    def module(self) -> str:
        """The module that the bug is in."""
        return self.file.removesuffix(".py").replace("/", ".")

    def changed_source(self) -> str:
        """The file's text with the bug. Raises ValueError where the bug does not apply."""
        text = (ROOT / self.file).read_text("utf-8")
        for old, new in self.replaced:
            if text.count(old) != 1:
                raise ValueError(f"{self.code}: {text.count(old)} times in {self.file}: {old!r}")
            text = text.replace(old, new)
        return text


def unplanted_bugs() -> list[UnplantedBug]:
    """All of them, in the order of the file."""
    return [
        UnplantedBug(
            code=row["code"],
            name=row["name"],
            file=row["file"],
            protocol=row["protocol"],
            kind=row["class"],
            because=row["because"],
            replaced=tuple(
                (row[f"{also}old"], row[f"{also}new"])
                for also in ("", "also_")
                if f"{also}old" in row
            ),
        )
        for row in tomllib.loads(FILE.read_text("utf-8"))["bug"]
    ]


def turn_on(bug: UnplantedBug) -> None:
    """From now on this process has the bug. Raises RuntimeError if the module runs already."""
    if bug.module in sys.modules:
        raise RuntimeError(f"{bug.module} was imported without {bug.code}")
    sys.meta_path.insert(0, _Finder(bug))


class _Finder:
    """Finds the one module that has the bug; the import system finds all others."""

    def __init__(self, bug: UnplantedBug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The changed module, None for any other."""
        if fullname != self._bug.module:
            return None
        return spec_from_loader(fullname, _Loader(self._bug))


class _Loader(SourceLoader):
    """Loads a module from its changed text."""

    def __init__(self, bug: UnplantedBug) -> None:
        self._bug = bug

    def get_filename(self, fullname: str) -> str:
        """A name that no file has: nothing is kept compiled."""
        return f"{ROOT / self._bug.file} with {self._bug.code}"

    def get_data(self, path: str) -> bytes:
        """The changed text; nothing else is there."""
        if path != self.get_filename(self._bug.module):
            raise OSError(path)
        return self._bug.changed_source().encode()
