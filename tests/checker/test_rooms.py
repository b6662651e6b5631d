"""The rooms of the checker and of the pages: who may import whom, and no cycle of modules."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.sources import python_files
from tests.test_project import Import, imports_of, listed

# A room may import itself and these.
MAY_IMPORT = {
    "formats": set[str](),
    "evidence": {"formats"},
    "ingest": {"formats", "evidence"},
    "checks": {"formats", "evidence"},
    "story": {"formats", "evidence", "ingest", "checks"},
    "output": {"formats", "evidence", "ingest", "checks"},
    "engine": {"formats", "evidence", "ingest", "checks", "output"},
}
LEAVES = frozenset({"theme", "wording", "svg"})
SUBJECTS = frozenset({"log", "leaders", "operations", "faults", "messages"})
PAGES_MAY_IMPORT = {
    "svg": frozenset[str](),
    **dict.fromkeys(("theme", "wording", "nightly_page", "evidence"), LEAVES - {"svg"}),
    **dict.fromkeys(SUBJECTS, LEAVES | {"evidence"}),
    "run_page": LEAVES | SUBJECTS | {"evidence"},
    "": {"run_page", "theme"},
}
IMPORTS = [found for file in python_files("checker") for found in imports_of(file)]
OF_PAGES = [found for file in python_files("reports") for found in imports_of(file)]


def room(name: str) -> str:
    """Return the room of a module of the checker; "" for the package itself."""
    return name.split(".")[1] if "." in name else ""


def is_allowed(found: Import) -> bool:
    """Return whether the importer's room may import this."""
    own = room(found.importer)
    if found.imported.startswith("checker."):
        return room(found.imported) in MAY_IMPORT[own] | {own}
    return own == "engine" or found.imported.partition(".")[0] not in ("pyspark", "py4j")


def test_the_outside_judge_imports_nothing_of_this_project() -> None:
    """Else an error of ours would be judged by itself. Only its reader reads files as all do."""
    ours = ("node", "nemesis", "harness", "reports", "checker", "msgspec", "numpy", "pyarrow")
    folder = python_files("tests/lab/outside_judge")
    own = [i for file in folder if not file.name.startswith("test_") for i in imports_of(file)]
    foreign = [
        found
        for found in own
        if found.imported.partition(".")[0] in ours
        and not found.imported.startswith("tests.lab.outside_judge")
        and found.imported not in ("node.formats.json_input", "node.formats.reading")
    ]
    assert len(own) > 5
    assert not foreign, listed(foreign)


def test_rooms_import_in_one_direction() -> None:
    broken = [found for found in IMPORTS if not is_allowed(found)]
    broken += [
        found
        for found in OF_PAGES
        if found.imported.startswith("reports.")
        and room(found.imported) not in PAGES_MAY_IMPORT[own := room(found.importer)] | {own}
    ]
    assert not broken, listed(broken)


def test_no_modules_import_each_other() -> None:
    known: dict[str, set[str]] = {}
    for found in (*IMPORTS, *OF_PAGES):
        if found.imported.startswith(("checker.", "reports.")) and found.imported != found.importer:
            known.setdefault(found.importer, set()).add(found.imported)
    try:
        tuple(TopologicalSorter(known).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))
