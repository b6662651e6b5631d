"""Compiled modules in place of the sources, where somebody has made them (`make fast`).

The simulated world runs the same code twice as fast when mypyc has compiled its hot modules. What
is compiled is kept outside the packages, in `build/compiled/<key>/`, and the key is a hash of all
sources: code that belongs to other sources than those that are here is never found, and the
sources themselves run. `FLOODMARK_PURE=1` leaves it aside; `make pure` throws it away.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

PURE: Final = "FLOODMARK_PURE"
ROOT: Final = Path(__file__).resolve().parent.parent.parent
SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))
"""How the name of a compiled module ends: interpreter and platform."""
SOURCES: Final = ("node", "nemesis", "harness", "checker")
"""Packages whose sources make up the key: what compiled code may have been made from."""


def home(root: Path = ROOT) -> Path:
    """Where compiled code is kept, in one folder a key."""
    return root / "build" / "compiled"


def key(root: Path = ROOT) -> str:
    """Names the sources as they are, and the interpreter they are compiled for."""
    told = hashlib.blake2b(SUFFIX.encode(), digest_size=10)
    for package in SOURCES:
        for file in sorted((root / package).rglob("*.py")):
            text = file.read_bytes()
            told.update(f"\n{file.relative_to(root)} {len(text)}\n".encode())
            told.update(text)
    return told.hexdigest()


class Finder(MetaPathFinder):
    """Finds the modules that are compiled; all others are found as ever."""

    def __init__(self, modules: Mapping[str, Path]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The compiled module of that name, None where there is none."""
        file = self._modules.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(
            fullname, file, loader=ExtensionFileLoader(fullname, str(file))
        )


def modules_in(folder: Path) -> dict[str, Path]:
    """The compiled modules of a folder, by their names."""
    return {
        ".".join(file.relative_to(folder).parts).removesuffix(SUFFIX): file
        for file in sorted(folder.rglob(f"*{SUFFIX}"))
    }


def use() -> None:
    """From now on import what is compiled from just these sources, if there is such a thing.

    All or nothing: where one of the modules has been imported from its source already, the
    sources run, for the two do not mix.
    """
    if os.environ.get(PURE) or in_use() or not home().is_dir():
        return
    found = modules_in(home() / key())
    if found and not sys.modules.keys() & found.keys():
        sys.meta_path.insert(0, Finder(found))


def in_use() -> bool:
    """Whether compiled modules run in this process."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)
