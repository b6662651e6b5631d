"""Compiles the hot modules of the simulated world with mypyc: `python -m harness.sim.compiling`.

Needs mypy, setuptools and a C compiler. The code made is found by `harness.sim.compiled`; the
source
stays what it is, and both give the very same runs (tests/harness/sim/test_compiled.py).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from harness.sim.compiled import ROOT, home, key

HOT: Final = (
    "node/core/wire.py",
    "node/formats/trace.py",
    "node/core/*.py",
    "nemesis/links/pipeline.py",
    "nemesis/injector.py",
    "nemesis/links/table.py",
    "nemesis/links/delay_queue.py",
    "nemesis/triggers.py",
    "nemesis/view.py",
    "harness/clients/session.py",
    "harness/clients/consumer.py",
    "harness/clients/metadata_cache.py",
    "harness/systems/floodmark/log_lines.py",
    "harness/clients/scripted.py",
    "harness/clients/producer.py",
    "harness/runs/storm.py",
    "harness/clients/statistics.py",
    "harness/clients/workload.py",
    "harness/sim/event_queue.py",
    "harness/sim/clients.py",
    "harness/sim/cluster.py",
    "harness/sim/coverage.py",
    "harness/sim/disk.py",
    "harness/sim/network.py",
    "harness/sim/node.py",
    "harness/sim/invariant_checker.py",
)
"""None of them defines a msgspec struct: mypyc forgets what is inside the types of its fields, and
so would the decoder."""
COLD: Final = (
    "node/core/__init__.py",
    "node/core/api.py",
    "node/core/log_dump.py",
    "node/core/image.py",
    "node/core/messages.py",
    "node/core/protocol.py",
    "node/core/storage.py",
    "node/core/bugs.py",
)
"""Tables, and types whose fields others read by their names: nothing is won there."""


def hot_files(root: Path = ROOT) -> list[str]:
    """The files to compile, as paths below the root."""
    found = {str(file.relative_to(root)) for pattern in HOT for file in sorted(root.glob(pattern))}
    return sorted(found - set(COLD))


def compile_all(root: Path = ROOT) -> Path:
    """Compile the sources as they are, unless that was done; returns the folder with the result.

    What was compiled from older sources is removed. Takes minutes. Raises SystemExit where mypyc
    or the C compiler refuse.
    """
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
                raise SystemExit("the sources were changed while they were compiled")
            build = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
            build.build_lib, build.build_temp = f"{folder}/lib", f"{folder}/temp"
            build.ensure_finalized()
            build.run()
        finally:
            os.chdir(before)
        Path(folder, "lib").rename(target)
    return target


if __name__ == "__main__":
    sys.stdout.write(f"compiled into {compile_all().relative_to(ROOT)}\n")
