"""Modules compiled by mypyc, which are imported in place of their sources.

The simulated world runs about twice as fast with them; nodes and clients of real runs use them too
(`harness.systems.floodmark.processes`). `make fast` compiles, `make pure` deletes the result,
`FLOODMARK_PURE=1` ignores it. Both forms give the same runs (tests/harness/sim/test_compiled.py).

Compiled code is in `build/compiled/<key>/`, where the key is a hash of all sources and the
interpreter, so it never comes from other sources. Every import of the package runs this module
first, so it imports at its top only what all of them need."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

PURE: Final = "FLOODMARK_PURE"
ROOT: Final = Path(__file__).resolve().parent.parent.parent
SUFFIX: Final = EXTENSION_SUFFIXES[0]
"""The end of a compiled module's file name: interpreter and platform."""
SOURCES: Final = ("node", "nemesis", "harness", "checker")
"""Packages whose sources are hashed into the key."""
HOT: Final = (
    "node/core/*.py",
    "node/core/groups/coordinator.py",
    "node/core/groups/decide.py",
    "node/formats/trace.py",
    "node/formats/wire.py",
    "nemesis/injector.py",
    "nemesis/links/pipeline.py",
    "nemesis/links/table.py",
    "nemesis/triggers.py",
    "nemesis/view.py",
    "harness/clients/consumer.py",
    "harness/clients/group.py",
    "harness/clients/member.py",
    "harness/clients/operation_log.py",
    "harness/clients/producer.py",
    "harness/clients/session.py",
    "harness/clients/workload.py",
    "harness/sim/before.py",
    "harness/sim/cluster.py",
    "harness/sim/disk.py",
    "harness/sim/group_invariant.py",
    "harness/sim/invariant_checker.py",
    "harness/sim/network.py",
    "harness/sim/node.py",
    "harness/sim/producer_invariant.py",
    "harness/sim/state_invariant.py",
    "harness/sim/step_invariant.py",
    "harness/sim/*_rules.py",
    "harness/systems/floodmark/replica_logs.py",
)
"""The modules to compile. None defines a msgspec struct: mypyc drops the parameters of its field
types (`tuple[int, ...]` becomes `tuple`), and the decoder needs them."""
COLD: Final = (
    "node/core/__init__.py",
    "node/core/api.py",
    "node/core/bugs.py",
    "node/core/image.py",
    "node/core/log_dump.py",
    "node/core/protocol.py",
    "node/core/storage.py",
)
"""Tables and structs, which do not run faster compiled, and what mypyc cannot compile."""


def home(root: Path = ROOT) -> Path:
    """Return the folder of compiled code, which has a subfolder for each key."""
    return root / "build" / "compiled"


def key(root: Path = ROOT) -> str:
    """Return a hash of the current sources and the interpreter."""
    import hashlib

    digest = hashlib.blake2b(SUFFIX.encode(), digest_size=10)
    for package in SOURCES:
        for file in sorted((root / package).rglob("*.py")):
            text = file.read_bytes()
            digest.update(f"\n{file.relative_to(root)} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()


class Finder:
    """A finder for `sys.meta_path` that finds the compiled modules only."""

    def __init__(self, modules: Mapping[str, Path]) -> None:
        self._modules = modules

    def running(self) -> list[str]:
        """Return the names of the compiled modules that have been imported."""
        return sorted(sys.modules.keys() & self._modules.keys())

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of a compiled module, None for any other module."""
        file = self._modules.get(fullname)
        if file is None:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(
            fullname, file, loader=ExtensionFileLoader(fullname, str(file))
        )


def modules_in(folder: Path) -> dict[str, Path]:
    """Return the files of the compiled modules in a folder, by the names of the modules."""
    return {
        ".".join(file.relative_to(folder).parts).removesuffix(SUFFIX): file
        for file in sorted(folder.rglob(f"*{SUFFIX}"))
    }


def use() -> None:
    """Import compiled modules from here on, if they were compiled from the current sources and no
    source of one was imported: the two do not mix."""
    if os.environ.get(PURE) or in_use() or not home().is_dir():
        return
    found = modules_in(home() / key())
    if found and not sys.modules.keys() & found.keys():
        sys.meta_path.insert(0, Finder(found))


def leave() -> None:
    """Import the sources from here on, for code that creates objects without calling their class.
    Raises RuntimeError if a compiled module was imported already."""
    for finder in [each for each in sys.meta_path if isinstance(each, Finder)]:
        if running := finder.running():
            raise RuntimeError(
                f"compiled modules are imported already: {', '.join(running)}; set {PURE}=1"
            )
        sys.meta_path.remove(finder)


def in_use() -> bool:
    """Return whether this process imports compiled modules."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def hot_files(root: Path = ROOT) -> list[str]:
    """Return the source files to compile, relative to the root."""
    found = {str(file.relative_to(root)) for pattern in HOT for file in sorted(root.glob(pattern))}
    return sorted(found - set(COLD))


def compile_all(root: Path = ROOT) -> Path:
    """Compile the current sources, if need be, in minutes, and delete older results. Return the
    folder. Needs mypy, setuptools and a C compiler. Raises SystemExit when compiling fails."""
    import shutil
    import tempfile

    from mypyc.build import mypycify
    from setuptools import Distribution

    sources = key(root)
    target = home(root) / sources
    if target.is_dir():
        return target
    shutil.rmtree(home(root), ignore_errors=True)
    home(root).mkdir(parents=True)
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir=home(root), prefix="tmp-") as folder:
        os.chdir(root)
        try:
            extensions = mypycify(
                hot_files(root), opt_level="2", debug_level="0", target_dir=f"{folder}/c"
            )
            if key(root) != sources:
                raise SystemExit(
                    "sources were changed while they were compiled; run make fast again"
                )
            build = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
            build.build_lib, build.build_temp = f"{folder}/lib", f"{folder}/temp"
            build.ensure_finalized()
            build.run()
        finally:
            os.chdir(before)
        Path(folder, "lib").rename(target)
    return target
