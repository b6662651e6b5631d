"""`floodmark systems`: what can be put under test, and whether an adapter works."""

from __future__ import annotations

from typing import Final

from harness.cli.common import print_json
from harness.cli.options import Command
from harness.formats.options import ListRequest
from harness.runs.requests import SystemCheckRequest, SystemGetRequest, SystemRowsRequest


def systems(request: ListRequest) -> None:
    """List the systems under test; check an adapter.

    Shows versions, faults, links and settings. If the server or client library of a system is
    not installed, the list says what brings it. `floodmark systems check my.py:Class` says what
    is wrong with an adapter, and `floodmark systems get kafka` fetches a server that no wheel
    brings."""
    from harness.runs.system_list import as_text, listed

    if request.json:
        print_json([*listed()])
    else:
        for system in listed():
            print(as_text(system))


def check(request: SystemCheckRequest) -> int:
    """Look through an adapter, then run it without faults, with a kill, and with a cut link. Exit
    code: 0 when every step passes, else 1."""
    from harness.runs.system_check import check_system
    from harness.systems import registry

    found = registry.find(request.system, request.settings)
    passed, links = True, request.links
    for step in check_system(found, request.store, links=links, quiet=request.quiet):
        passed = passed and step.passed
        # At once, into a file too: processes of the next step would write it again.
        print(f"{'ok ' if step.passed else 'NOT'} {step.name}: {step.sentence}", flush=True)
        for hint in step.hints:
            print(f"    hint: {hint}")
        if not step.passed and step.folder is not None:
            print(f"    run: {step.folder} (output/ has what nodes and adapter printed)")
    return 0 if passed else 1


def rows(request: SystemRowsRequest) -> int:
    """Run what docs/systems says of third-party systems, row by row.

    Exit code: 0 when all rows hold, 1 when one does not, 2 when that stays open: a server is not
    installed, or a run has no verdict."""
    from harness.cli.common import tell
    from harness.nightly import rows as table
    from harness.runs.interrupts import Interrupts

    results = []
    with Interrupts() as interrupts:
        say = (lambda sentence: None) if request.quiet else tell
        for runs in table.run_rows(request, lambda: interrupts.asked, say):
            results.append(runs)
            state = {True: "ok  ", False: "NOT ", None: "open"}[runs.holds]
            print(f"{state} {runs}", flush=True)
            if request.page is not None:
                table.write(request.page, results)
    if any(runs.holds is False for runs in results):
        return 1
    return 0 if results and all(runs.holds for runs in results) and not interrupts.asked else 2


def get(request: SystemGetRequest) -> int:
    """Fetch servers, verify their checksums, and unpack them beside Python; install nothing.

    Without --version these are the servers that no wheel brings. Exit code: 0 when all of them are
    there, else 1."""
    from harness.runs.progress import Progress
    from harness.systems import registry
    from harness.systems.external import versions
    from harness.systems.external.system import ExternalSystem
    from node.formats.errors import FloodmarkError

    complete = True
    for name in request.names or registry.names():
        try:
            system = registry.find(name)
            if not isinstance(system, ExternalSystem):
                continue
            binary, standard = system.adapter.binary, system.adapter.standard
            for version in versions.named(binary, request.version or [standard] * bool(standard)):
                with Progress(state=str) as progress:
                    progress.phase(f"fetching {name} {version}")
                    place = versions.obtain(binary, version)
                print(f"{name} {version}: {place}")
        except FloodmarkError as error:
            complete = False
            print(f"{name}: not here: {error}")
    return 0 if complete else 1


SUBCOMMANDS: Final[dict[str, Command]] = {"check": check, "rows": rows, "get": get}
